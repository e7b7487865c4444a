package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// UpdateFeatures (57): versions 0–2 (KIP-584, KIP-778).
//
//	v0 downgrades are allowed or not    v1 kind of upgrade, dry run    v2 no result of each feature
//
// All levels change or none does.
var apiUpdateFeatures = api{key: 57, name: "UpdateFeatures", min: 0, max: 2, forwarded: true, handle: typed((*Server).updateFeatures)}

func (s *Server) updateFeatures(r *request, q *kmsg.UpdateFeaturesRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrUpdateFeaturesResponse()
	ctx, cancel := s.metadataContext(r, q.TimeoutMillis)
	defer cancel()
	updates := make([]meta.FeatureUpdate, len(q.FeatureUpdates))
	for i := range q.FeatureUpdates {
		f := &q.FeatureUpdates[i]
		updates[i] = meta.FeatureUpdate{Name: f.Feature, Level: f.MaxVersionLevel, Upgrade: meta.FeatureUpgrade(f.UpgradeType)}
		if r.version == 0 {
			updates[i].Upgrade = meta.UpgradeFeature
			if f.AllowDowngrade {
				updates[i].Upgrade = meta.SafelyDowngradeFeature
			}
		}
	}
	err := s.decider(r).UpdateFeatures(ctx, updates, r.version >= 1 && q.ValidateOnly)
	if err != nil {
		resp.ErrorCode = s.codeOf(r, err)
		resp.ErrorMessage = optional("The update failed for all features since the following feature had an error: " + err.Error())
		return resp, nil
	}
	for i := range updates {
		f := kmsg.NewUpdateFeaturesResponseResult()
		f.Feature, f.ErrorMessage = updates[i].Name, kmsg.StringPtr("NONE") // as Kafka puts it
		resp.Results = append(resp.Results, f)
	}
	return resp, nil
}
