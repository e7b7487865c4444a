package meta

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"
)

// The keys of client quotas. Kafka's names.
const (
	ProducerByteRate       = "producer_byte_rate"       // bytes of produce requests a second
	ConsumerByteRate       = "consumer_byte_rate"       // bytes of records fetched a second
	RequestPercentage      = "request_percentage"       // of one thread's time
	ControllerMutationRate = "controller_mutation_rate" // partitions created and deleted a second (KIP-599)
	ConnectionCreationRate = "connection_creation_rate" // connections of an address a second (KIP-612)
)

// The types of entities that quotas are set for. Kafka's names.
const (
	QuotaUser     = "user"
	QuotaClientID = "client-id"
	QuotaIP       = "ip"
)

// QuotaEntity is whom a quota is for: clients of a user, of a client id, of
// both, or of an address.
type QuotaEntity struct {
	User, ClientID, IP QuotaName
}

// QuotaName is one part of a QuotaEntity: absent, a name, or the default for
// all whose name has no quota of its own.
type QuotaName struct {
	Kind QuotaNameKind
	Name string // of NamedQuota
}

// QuotaNameKind tells the kinds of QuotaName apart. Format: do not renumber.
type QuotaNameKind uint8

// The kinds of QuotaName.
const (
	NoQuotaName  QuotaNameKind = 0
	NamedQuota   QuotaNameKind = 1
	DefaultQuota QuotaNameKind = 2
)

// QuotaValue is one of an entity's quotas.
type QuotaValue struct {
	Key   string
	Value float64
}

// Quota is an entity with its quotas, by key.
type Quota struct {
	Entity QuotaEntity
	Values []QuotaValue
}

// QuotaPart is one part of an entity as requests name it; a nil Name is the
// default.
type QuotaPart struct {
	Type string
	Name *string
}

// Parts are the entity's parts, as answers name them.
func (e QuotaEntity) Parts() []QuotaPart {
	var parts []QuotaPart
	for _, t := range []struct {
		is   string
		name QuotaName
	}{{QuotaUser, e.User}, {QuotaClientID, e.ClientID}, {QuotaIP, e.IP}} {
		switch t.name.Kind {
		case NamedQuota:
			parts = append(parts, QuotaPart{t.is, &t.name.Name})
		case DefaultQuota:
			parts = append(parts, QuotaPart{t.is, nil})
		}
	}
	return parts
}

// part is where the entity holds its part of a type; nil: there is no such type.
func (e *QuotaEntity) part(is string) *QuotaName {
	switch is {
	case QuotaUser:
		return &e.User
	case QuotaClientID:
		return &e.ClientID
	case QuotaIP:
		return &e.IP
	}
	return nil
}

func compareQuotas(a, b QuotaEntity) int {
	return cmp.Or(compareQuotaNames(a.User, b.User), compareQuotaNames(a.ClientID, b.ClientID), compareQuotaNames(a.IP, b.IP))
}

func compareQuotaNames(a, b QuotaName) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
}

// Quotas returns every entity that has quotas, in a fixed order.
func (img *Image) Quotas() []Quota { return img.quotas }

// quota finds an entity's place among the quotas.
func (img *Image) quota(e QuotaEntity) (at int, ok bool) {
	return slices.BinarySearchFunc(img.quotas, e, func(q Quota, e QuotaEntity) int { return compareQuotas(q.Entity, e) })
}

// SetQuotas changes an entity's quotas.
type SetQuotas struct {
	Entity QuotaEntity
	Set    []QuotaValue // by key
	Remove []string
}

func (SetQuotas) tag() changeTag { return tagSetQuotas }

func (SetQuotas) since() int16 { return levelQuotas }

func (c SetQuotas) encode(e *encoder) {
	e.quota(Quota{c.Entity, c.Set})
	e.count(len(c.Remove))
	for _, key := range c.Remove {
		e.str(key)
	}
}

func decodeSetQuotas(d *decoder) SetQuotas {
	q := d.quota()
	c := SetQuotas{Entity: q.Entity, Set: q.Values}
	if n := d.count(1); n > 0 {
		c.Remove = make([]string, n)
		for i := range c.Remove {
			c.Remove[i] = d.str()
		}
	}
	return c
}

func (c SetQuotas) apply(next *Image, _ uint64) error {
	next.setQuotas([]SetQuotas{c})
	return nil
}

// quotasRun is the changes of quotas that a list begins with. One command may
// have thousands: they are made together, because each makes a new list.
func quotasRun(changes []Change) []SetQuotas {
	var run []SetQuotas
	for _, change := range changes {
		c, ok := change.(SetQuotas)
		if !ok {
			break
		}
		run = append(run, c)
	}
	return run
}

// setQuotas makes changes of quotas, in their order.
func (img *Image) setQuotas(changes []SetQuotas) {
	changed := make(map[QuotaEntity][]QuotaValue, len(changes))
	for _, c := range changes {
		values, ok := changed[c.Entity]
		if at, has := img.quota(c.Entity); !ok && has {
			values = slices.Clone(img.quotas[at].Values)
		}
		changed[c.Entity] = c.of(values)
	}
	entities := slices.SortedFunc(maps.Keys(changed), compareQuotas)
	quotas := make([]Quota, 0, len(img.quotas)+len(entities))
	rest := img.quotas
	for _, e := range entities {
		at, has := slices.BinarySearchFunc(rest, e, func(q Quota, e QuotaEntity) int { return compareQuotas(q.Entity, e) })
		quotas = append(quotas, rest[:at]...)
		if values := changed[e]; len(values) > 0 {
			quotas = append(quotas, Quota{e, values})
		}
		if has {
			at++
		}
		rest = rest[at:]
	}
	if quotas = append(quotas, rest...); len(quotas) == 0 {
		quotas = nil
	}
	img.quotas = quotas
}

// of makes the change of an entity's values, which are the caller's own.
func (c SetQuotas) of(values []QuotaValue) []QuotaValue {
	for _, v := range c.Set {
		if i, has := findQuotaValue(values, v.Key); has {
			values[i] = v
		} else {
			values = slices.Insert(values, i, v)
		}
	}
	for _, key := range c.Remove {
		if i, has := findQuotaValue(values, key); has {
			values = slices.Delete(values, i, i+1)
		}
	}
	return values
}

func findQuotaValue(values []QuotaValue, key string) (at int, ok bool) {
	return slices.BinarySearchFunc(values, key, func(v QuotaValue, key string) int { return strings.Compare(v.Key, key) })
}

func (e *encoder) quota(q Quota) {
	for _, n := range []QuotaName{q.Entity.User, q.Entity.ClientID, q.Entity.IP} {
		e.u8(uint8(n.Kind))
		if n.Kind == NamedQuota {
			e.str(n.Name)
		}
	}
	e.count(len(q.Values))
	for _, v := range q.Values {
		e.str(v.Key)
		e.b = binary.BigEndian.AppendUint64(e.b, math.Float64bits(v.Value))
	}
}

func (d *decoder) quota() Quota {
	q := Quota{Entity: QuotaEntity{User: d.quotaName(), ClientID: d.quotaName(), IP: d.quotaName()}}
	n := d.count(9)
	if n == 0 {
		return q
	}
	q.Values = make([]QuotaValue, n)
	for i := range q.Values {
		v := &q.Values[i]
		v.Key = d.str()
		if b := d.take(8); b != nil {
			v.Value = math.Float64frombits(binary.BigEndian.Uint64(b))
		}
		if d.err == nil && (v.Value != v.Value || i > 0 && v.Key <= q.Values[i-1].Key) {
			d.fail("quota %q is no number or out of order", v.Key)
		}
	}
	return q
}

func (d *decoder) quotaName() QuotaName {
	n := QuotaName{Kind: QuotaNameKind(d.u8())}
	switch n.Kind {
	case NoQuotaName, DefaultQuota:
	case NamedQuota:
		n.Name = d.str()
	default:
		d.fail("bad kind %d of a quota's name", n.Kind)
	}
	return n
}

// encodeQuotas writes every quota.
func (img *Image) encodeQuotas() []byte {
	if len(img.quotas) == 0 {
		return nil
	}
	var e encoder
	e.count(len(img.quotas))
	for _, q := range img.quotas {
		e.quota(q)
	}
	return e.b
}

func (img *Image) decodeQuotas(d *decoder) {
	n := d.count(4 + 9)
	img.quotas = make([]Quota, n)
	for i := range img.quotas {
		q := d.quota()
		if d.err == nil && (len(q.Values) == 0 || i > 0 && compareQuotas(img.quotas[i-1].Entity, q.Entity) >= 0) {
			d.fail("quotas of an entity are none or out of order")
		}
		if d.err != nil {
			return
		}
		img.quotas[i] = q
	}
	if n == 0 {
		d.fail("no quotas")
	}
}
