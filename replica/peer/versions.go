package peer

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// SoftwareName is how a broker names itself in ApiVersions: only then is it told about the keys between brokers.
const SoftwareName = "varve-broker"

// Served is the versions of one key.
type Served struct{ Key, Min, Max int16 }

// AppendServed encodes TagServed's value.
func AppendServed(dst []byte, list []Served) []byte {
	for _, s := range list {
		dst = binary.BigEndian.AppendUint16(dst, uint16(s.Key))
		dst = binary.BigEndian.AppendUint16(dst, uint16(s.Min))
		dst = binary.BigEndian.AppendUint16(dst, uint16(s.Max))
	}
	return dst
}

// readServed decodes TagServed's value.
func readServed(b []byte) []Served {
	if len(b)%6 != 0 {
		return nil
	}
	list := make([]Served, 0, len(b)/6)
	for ; len(b) > 0; b = b[6:] {
		list = append(list, Served{
			Key: int16(binary.BigEndian.Uint16(b)), Min: int16(binary.BigEndian.Uint16(b[2:])), Max: int16(binary.BigEndian.Uint16(b[4:])),
		})
	}
	return list
}

// versions is what a peer serves.
type versions map[int16]Served

func readVersions(resp *kmsg.ApiVersionsResponse) versions {
	v := versions{}
	for _, k := range resp.ApiKeys {
		v[k.ApiKey] = Served{k.ApiKey, k.MinVersion, k.MaxVersion}
	}
	if b, ok := Raw(&resp.UnknownTags, TagServed); ok {
		for _, s := range readServed(b) {
			v[s.Key] = s
		}
	}
	return v
}

// settle lowers the request's version to what the peer serves.
func (v versions) settle(req kmsg.Request) error {
	s, ok := v[req.Key()]
	if !ok {
		return fmt.Errorf("%w: key %d", ErrUnsupported, req.Key())
	}
	if req.GetVersion() < s.Min {
		return fmt.Errorf("%w: key %d version %d, it serves %d to %d", ErrUnsupported, req.Key(), req.GetVersion(), s.Min, s.Max)
	}
	if req.GetVersion() > s.Max {
		req.SetVersion(s.Max)
	}
	return nil
}
