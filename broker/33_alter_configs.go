package broker

import (
	"context"
	"errors"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// AlterConfigs (33): versions 0–2; v2 is flexible. The settings given replace all that were set before.
var apiAlterConfigs = api{key: 33, name: "AlterConfigs", min: 0, max: 2, forwarded: true, handle: typed((*Server).alterConfigsLegacy)}

func (s *Server) alterConfigsLegacy(r *request, q *kmsg.AlterConfigsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAlterConfigsResponse()
	for i, err := range s.alterConfigs(r, legacyChanges(q), q.ValidateOnly) {
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = q.Resources[i].ResourceType, q.Resources[i].ResourceName
		out.ErrorCode, out.ErrorMessage = s.codeOf(r, err), message(err)
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

func legacyChanges(q *kmsg.AlterConfigsRequest) []configChange {
	changes := make([]configChange, len(q.Resources))
	for i := range q.Resources {
		x := &q.Resources[i]
		c := &changes[i]
		c.Replace = true
		c.ConfigResource, c.err = configResource(x.ResourceType, x.ResourceName)
		for _, e := range x.Configs {
			c.Edits = append(c.Edits, meta.ConfigEdit{Name: e.Name, Op: meta.OpSet, Value: e.Value})
		}
	}
	return changes
}

// configChange is one resource of either request; err says that it names no resource of ours.
type configChange struct {
	meta.ConfigChange
	err error
}

// alterConfigs returns what became of each change, in their order.
func (s *Server) alterConfigs(r *request, changes []configChange, validateOnly bool) []error {
	ctx, cancel := context.WithTimeout(r.ctx, s.cfg.RequestsTime)
	defer cancel()
	errs := make([]error, len(changes))
	var valid []meta.ConfigChange
	var at []int
	for i := range changes {
		if errs[i] = changes[i].err; errs[i] == nil {
			errs[i] = s.checkOwn(r, &changes[i].ConfigChange)
		}
		if errs[i] == nil {
			valid = append(valid, changes[i].ConfigChange)
			at = append(at, i)
		}
	}
	if len(valid) == 0 {
		return errs
	}
	results, err := s.decider(r).AlterConfigs(ctx, valid, validateOnly)
	for k, i := range at {
		if err != nil {
			errs[i] = err
		} else {
			errs[i] = results[k].Err
		}
		if c := &changes[i]; c.Kind == meta.TopicConfig && errors.Is(errs[i], meta.ErrUnknownTopic) {
			errs[i] = withMessage(meta.ErrUnknownTopic, "The topic '%s' does not exist.", c.Name)
		}
	}
	return errs
}

// checkOwn refuses settings of another broker: only a broker itself knows whether it could run with them. What came in an
// envelope was checked by the broker that it was sent to. That a broker is to be emptied may be said to any: it may be one
// that cannot be asked any more.
func (s *Server) checkOwn(r *request, c *meta.ConfigChange) error {
	if r.enveloped || c.Kind != meta.BrokerConfig || c.Name == "" {
		return nil
	}
	if len(c.Edits) == 1 && c.Edits[0].Name == meta.DrainSetting && !c.Replace {
		return nil
	}
	id, err := strconv.ParseInt(c.Name, 10, 32)
	if err == nil && int32(id) != s.cfg.NodeID {
		return withMessage(meta.ErrInvalidRequest, "Unexpected broker id, expected %d, but received %s", s.cfg.NodeID, c.Name)
	}
	return nil // the controller refuses what is no number
}
