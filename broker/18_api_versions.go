package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/replica/peer"
)

// ApiVersions (18): versions 0–4. Kafka 4.4 serves 5 as well; kmsg does not know it, and a client that asks with 5 takes
// the version-0 answer (KIP-511) and asks again.
var apiApiVersions = api{key: keyApiVersions, name: "ApiVersions", min: 0, max: 4, handle: typed((*Server).apiVersions)}

func (s *Server) apiVersions(r *request, q *kmsg.ApiVersionsRequest) (kmsg.Response, error) {
	if err := r.c.prove(q.ClientSoftwareName); err != nil {
		return nil, err
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	if r.version >= 3 && (!softwareName(q.ClientSoftwareName) || !softwareName(q.ClientSoftwareVersion)) {
		resp.ErrorCode = codeInvalidRequest
		return resp, nil
	}
	resp.ApiKeys = s.table.advertised()
	features, img := meta.Features(), new(meta.Image)
	if s.deps.Metadata != nil {
		img = s.deps.Metadata.Image()
	}
	for _, f := range features {
		if r.version < 4 && f.Min == 0 {
			continue // older clients take a minimum of 0 for an error (KAFKA-17011)
		}
		a := kmsg.NewApiVersionsResponseSupportedFeature()
		a.Name, a.MinVersion, a.MaxVersion = f.Name, f.Min, f.Max
		resp.SupportedFeatures = append(resp.SupportedFeatures, a)
	}
	for _, f := range features {
		level := img.FeatureLevel(f.Name)
		if level == 0 {
			continue
		}
		a := kmsg.NewApiVersionsResponseFinalizedFeature()
		a.Name, a.MinVersionLevel, a.MaxVersionLevel = f.Name, level, level
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, a)
	}
	resp.FinalizedFeaturesEpoch = img.FeaturesEpoch()
	if q.ClientSoftwareName == peer.SoftwareName {
		r.c.broker = !r.c.door.ClientsOnly
		resp.UnknownTags.Set(peer.TagServed, s.table.internal())
	}
	return resp, nil
}

// softwareName applies Kafka's pattern for client software: [a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?
func softwareName(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (c != '-' && c != '.' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return s != ""
}

// advertised is what ApiVersions names: every key served.
func (t *table) advertised() []kmsg.ApiVersionsResponseApiKey {
	var keys []kmsg.ApiVersionsResponseApiKey
	for _, a := range t.byKey {
		if a == nil || a.internal {
			continue
		}
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
		if a.advertised != nil {
			k.MinVersion = *a.advertised
		}
		keys = append(keys, k)
	}
	return keys
}

// internal is what other brokers are told beyond that, encoded.
func (t *table) internal() (b []byte) {
	for _, a := range t.byKey {
		if a != nil && a.internal {
			b = peer.AppendServed(b, []peer.Served{{Key: a.key, Min: a.min, Max: a.max}})
		}
	}
	return b
}

// answerUnknownApiVersions answers a version of ApiVersions that is not served: body and header of version 0, the error, and
// only the range of ApiVersions itself, from which the client picks the version to ask again with (KIP-511).
func (c *conn) answerUnknownApiVersions(h *header) error {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = codeUnsupportedVersion
	for _, k := range c.srv.table.advertised() {
		if k.ApiKey == keyApiVersions {
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
	}
	p := newReply()
	p.encode(h.correlation, false, resp)
	return c.push(p, true)
}
