package meta

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/varvelog/varve/meta/conf"
)

// QuotaChange asks for other quotas of an entity.
type QuotaChange struct {
	Entity []QuotaPart
	Ops    []QuotaOp
}

// QuotaOp sets or removes one quota.
type QuotaOp struct {
	Key    string
	Value  float64
	Remove bool
}

// QuotaResult is what became of a QuotaChange.
type QuotaResult struct {
	Entity []QuotaPart
	Err    error
}

// quotaOpsMax bounds what one request may change.
const quotaOpsMax = 10_000

// quotaKeys are the largest values of the keys, and whether they are whole
// numbers.
var quotaKeys = map[string]struct {
	ip     bool // of an address; the others are of users and client ids
	whole  bool
	most   float64
	typeOf string // which would hold no more, in Kafka's words
}{
	ProducerByteRate:       {whole: true, most: math.MaxInt64, typeOf: "a LONG"},
	ConsumerByteRate:       {whole: true, most: math.MaxInt64, typeOf: "a LONG"},
	RequestPercentage:      {most: math.MaxFloat64},
	ControllerMutationRate: {most: math.MaxFloat64},
	ConnectionCreationRate: {ip: true, whole: true, most: math.MaxInt32, typeOf: "an INT"},
}

// decideQuotas decides on the quotas of entities one by one. An entity that is
// named again is refused, after what its first mention asked for was done, as
// in Kafka: it has one result.
func decideQuotas(img *Image, wishes []QuotaChange) ([]QuotaResult, []Change, error) {
	ops := 0
	for i := range wishes {
		ops += len(wishes[i].Ops)
	}
	if ops > quotaOpsMax {
		return nil, nil, refuse(ErrPolicyViolation, "Unable to perform excessively large batch operation.")
	}
	var results []QuotaResult
	var changes []Change
	seen := make(map[string]int, len(wishes))
	for i := range wishes {
		w := &wishes[i]
		parts := lastOfEachType(w.Entity)
		text := quotaPartsText(parts)
		at, again := seen[text]
		if !again {
			at = len(results)
			seen[text] = at
			results = append(results, QuotaResult{Entity: parts})
		}
		if again || duplicateKeys(w.Ops) {
			results[at].Err = refuse(ErrInvalidRequest, "Ignoring duplicate entity %s", text)
			continue
		}
		c, err := decideQuota(img, parts, w.Ops)
		results[at].Err = err
		if err == nil && len(c.Set)+len(c.Remove) > 0 {
			changes = append(changes, c)
		}
	}
	return results, changes, nil
}

// lastOfEachType is what Kafka makes of an entity that names a type twice.
func lastOfEachType(parts []QuotaPart) []QuotaPart {
	var out []QuotaPart
	for _, p := range parts {
		if i := slices.IndexFunc(out, func(o QuotaPart) bool { return o.Type == p.Type }); i >= 0 {
			out[i] = p
		} else {
			out = append(out, p)
		}
	}
	return out
}

// quotaPartsText is an entity in Kafka's words; equal entities have equal ones
// here, in whatever order their parts came.
func quotaPartsText(parts []QuotaPart) string {
	list := make([]string, len(parts))
	for i, p := range parts {
		list[i] = p.Type + "=null"
		if p.Name != nil {
			list[i] = p.Type + "=" + *p.Name
		}
	}
	slices.SortFunc(list, func(a, b string) int { return strings.Compare(a, b) })
	return "ClientQuotaEntity(entries={" + strings.Join(list, ", ") + "})"
}

func duplicateKeys(ops []QuotaOp) bool {
	seen := make(map[string]bool, len(ops))
	for _, o := range ops {
		if seen[o.Key] {
			return true
		}
		seen[o.Key] = true
	}
	return false
}

func decideQuota(img *Image, parts []QuotaPart, ops []QuotaOp) (SetQuotas, error) {
	entity, err := quotaEntity(parts)
	if err != nil {
		return SetQuotas{}, err
	}
	var old []QuotaValue
	if at, ok := img.quota(entity); ok {
		old = img.quotas[at].Values
	}
	c := SetQuotas{Entity: entity}
	for _, o := range ops {
		i, has := findQuotaValue(old, o.Key)
		if o.Remove {
			if has {
				c.Remove = append(c.Remove, o.Key)
			}
			continue
		}
		if err := checkQuota(entity, o); err != nil {
			return SetQuotas{}, err
		}
		if !has || old[i].Value != o.Value {
			c.Set = append(c.Set, QuotaValue{o.Key, o.Value})
		}
	}
	slices.SortFunc(c.Set, func(a, b QuotaValue) int { return strings.Compare(a.Key, b.Key) })
	slices.Sort(c.Remove)
	return c, nil
}

// quotaEntity reads an entity and refuses what none can be.
func quotaEntity(parts []QuotaPart) (QuotaEntity, error) {
	var e QuotaEntity
	for _, p := range parts {
		n := e.part(p.Type)
		switch {
		case n == nil:
			return e, refuse(ErrInvalidRequest, "Unhandled client quota entity type: %s", p.Type)
		case p.Name == nil:
			n.Kind = DefaultQuota
		case *p.Name == "":
			return e, refuse(ErrInvalidRequest, "Empty %s not supported", p.Type)
		default:
			*n = QuotaName{NamedQuota, *p.Name}
		}
	}
	client := e.User.Kind != NoQuotaName || e.ClientID.Kind != NoQuotaName
	switch {
	case e.IP.Kind != NoQuotaName && client:
		return e, refuse(ErrInvalidRequest, "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
	case e.IP.Kind == NamedQuota && !isAddress(e.IP.Name):
		return e, refuse(ErrInvalidRequest, "%s is not a valid IP or resolvable host.", e.IP.Name)
	case e.IP.Kind == NoQuotaName && !client:
		return e, refuse(ErrInvalidRequest, "Invalid empty client quota entity")
	}
	return e, nil
}

// isAddress accepts addresses alone. Kafka looks names up, at the controller and
// at each broker, which may learn different addresses from that.
func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}

func checkQuota(e QuotaEntity, o QuotaOp) error {
	k, ok := quotaKeys[o.Key]
	switch {
	case !ok || k.ip != (e.IP.Kind != NoQuotaName):
		return refuse(ErrInvalidRequest, "Invalid configuration key %s", o.Key)
	case !(o.Value > 0): // no number at all is refused as well
		return refuse(ErrInvalidRequest, "Quota %s must be greater than 0", o.Key)
	case math.IsInf(o.Value, 1):
		return refuse(ErrInvalidRequest, "Quota %s must be a finite number", o.Key)
	case o.Value > k.most:
		return refuse(ErrInvalidRequest, "Proposed value for %s is too large for %s.", o.Key, k.typeOf)
	case k.whole && math.Mod(o.Value, 1) > 1e-6:
		return refuse(ErrInvalidRequest, "%s cannot be a fractional value.", o.Key)
	}
	return nil
}

// QuotaMatch says which names a QuotaFilter's part is about. Wire format: do
// not renumber.
type QuotaMatch int8

// The kinds of QuotaMatch.
const (
	MatchName    QuotaMatch = 0 // the one that is given
	MatchDefault QuotaMatch = 1
	MatchAny     QuotaMatch = 2 // any name, or the default
)

// QuotaFilter selects entities: those that have every part that it names.
type QuotaFilter struct {
	Parts  []QuotaFilterPart
	Strict bool // and no other part
}

// QuotaFilterPart is one part of a filter.
type QuotaFilterPart struct {
	Type  string
	Match QuotaMatch
	Name  *string
}

// FilterQuotas returns the quotas of the entities that a filter selects.
func (img *Image) FilterQuotas(f QuotaFilter) ([]Quota, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if len(f.Parts) == 0 && f.Strict {
		return nil, nil
	}
	var out []Quota
	for _, q := range img.quotas {
		if f.selects(q.Entity) {
			out = append(out, q)
		}
	}
	return out, nil
}

func (f QuotaFilter) check() error {
	var e QuotaEntity // which types were named
	for _, p := range f.Parts {
		n := e.part(p.Type)
		switch {
		case p.Type == "":
			return refuse(ErrInvalidRequest, "Invalid empty entity type.")
		case n == nil:
			return refuse(ErrUnknownQuotaType, "Unsupported entity type %s", p.Type)
		case n.Kind != NoQuotaName:
			return refuse(ErrInvalidRequest, "Entity type %s cannot appear more than once in the filter.", p.Type)
		case p.Match == MatchName && p.Name == nil:
			return refuse(ErrInvalidRequest, "Request specified MATCH_TYPE_EXACT, but set match string to null.")
		case p.Match == MatchDefault && p.Name != nil:
			return refuse(ErrInvalidRequest, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
		case p.Match == MatchAny && p.Name != nil:
			return refuse(ErrInvalidRequest, "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
		case p.Match < MatchName || p.Match > MatchAny:
			return refuse(ErrInvalidRequest, "Unknown match type %d", p.Match)
		}
		n.Kind = DefaultQuota
	}
	if e.IP.Kind != NoQuotaName && (e.User.Kind != NoQuotaName || e.ClientID.Kind != NoQuotaName) {
		return refuse(ErrInvalidRequest, "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter component.")
	}
	return nil
}

func (f QuotaFilter) selects(e QuotaEntity) bool {
	for _, p := range f.Parts {
		n := e.part(p.Type)
		switch {
		case n.Kind == NoQuotaName:
			return false
		case p.Match == MatchName && *n != QuotaName{NamedQuota, *p.Name}:
			return false
		case p.Match == MatchDefault && n.Kind != DefaultQuota:
			return false
		}
	}
	return !f.Strict || len(e.Parts()) == len(f.Parts)
}

// AlterQuotas changes quotas of clients; each entity has its own result. With
// validateOnly it only says what would become of each.
func (n *Node) AlterQuotas(ctx context.Context, wishes []QuotaChange, validateOnly bool) ([]QuotaResult, error) {
	var results []QuotaResult
	_, err := n.change(ctx, validateOnly, func(img *Image, _ *conf.Broker) ([]Change, error) {
		var changes []Change
		var err error
		results, changes, err = decideQuotas(img, wishes)
		return changes, err
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// String is the entity as logs and tools name it.
func (e QuotaEntity) String() string {
	var list []string
	for _, p := range e.Parts() {
		name := "<default>"
		if p.Name != nil {
			name = *p.Name
		}
		list = append(list, fmt.Sprintf("%s=%s", p.Type, name))
	}
	return strings.Join(list, " ")
}
