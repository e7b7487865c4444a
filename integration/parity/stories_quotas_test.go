package parity

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/nodetest"
)

func quotaStories() []story {
	return []story{
		{"quotas of clients", quotasAltered},
		{"quotas, odd ones", quotasOdd},
		{"quotas, filters", quotasFiltered},
	}
}

// alterQuotas asks for other quotas; each wish is "type=name … key=value …",
// where the name - is the default, the name "" is empty, and none removes.
func alterQuotas(s *session, step string, version int16, wishes ...string) {
	req := kmsg.NewPtrAlterClientQuotasRequest()
	for _, w := range wishes {
		e := kmsg.NewAlterClientQuotasRequestEntry()
		for _, word := range strings.Fields(w) {
			name, value, _ := strings.Cut(word, "=")
			if strings.Contains(name, "_") {
				o := kmsg.NewAlterClientQuotasRequestEntryOp()
				o.Key, o.Remove = name, value == "none"
				if !o.Remove {
					if _, err := fmt.Sscan(value, &o.Value); err != nil {
						s.t.Fatal(err)
					}
				}
				e.Ops = append(e.Ops, o)
				continue
			}
			p := kmsg.NewAlterClientQuotasRequestEntryEntity()
			p.Type, p.Name = name, quotaName(value)
			e.Entity = append(e.Entity, p)
		}
		req.Entries = append(req.Entries, e)
	}
	sendQuotas(s, step, version, req)
	settleQuotas(s)
}

// settleQuotas waits until the broker knows what was altered: it answers from
// its own copy of the metadata, which follows.
func settleQuotas(s *session) {
	alter := kmsg.NewPtrAlterClientQuotasRequest()
	e := kmsg.NewAlterClientQuotasRequestEntry()
	e.Entity = []kmsg.AlterClientQuotasRequestEntryEntity{{Type: "user", Name: kmsg.StringPtr("settle")}}
	e.Ops = []kmsg.AlterClientQuotasRequestEntryOp{{Key: "producer_byte_rate", Value: 1}}
	alter.Entries = append(alter.Entries, e)
	look := kmsg.NewPtrDescribeClientQuotasRequest()
	look.Components = []kmsg.DescribeClientQuotasRequestComponent{{EntityType: "user", Match: kmsg.StringPtr("settle")}}
	for _, want := range []int{1, 0} {
		alter.Entries[0].Ops[0].Remove = want == 0
		s.quiet(1, alter)
		nodetest.Eventually(s.t, 20*time.Second, "quotas are known", func() error {
			if resp, _ := s.quiet(1, look).(*kmsg.DescribeClientQuotasResponse); resp == nil || len(resp.Entries) != want {
				return errors.New("not yet")
			}
			return nil
		})
	}
}

func quotaName(text string) *string {
	switch text {
	case "-":
		return nil
	case `""`:
		return kmsg.StringPtr("")
	}
	return &text
}

// sendQuotas writes an answer down with its entities in a fixed order: Kafka
// has them in a map.
func sendQuotas(s *session, step string, version int16, req *kmsg.AlterClientQuotasRequest) {
	label := fmt.Sprintf("%s v%d", step, version)
	resp, _ := s.quiet(version, req).(*kmsg.AlterClientQuotasResponse)
	if resp == nil {
		s.note(label, "connection closed")
		return
	}
	for i := range resp.Entries {
		parts := resp.Entries[i].Entity
		sort.SliceStable(parts, func(a, b int) bool { return parts[a].Type < parts[b].Type })
	}
	sort.SliceStable(resp.Entries, func(a, b int) bool {
		return alterText(resp.Entries[a]) < alterText(resp.Entries[b])
	})
	s.response(label, resp)
}

func alterText(e kmsg.AlterClientQuotasResponseEntry) string {
	var b strings.Builder
	for _, p := range e.Entity {
		b.WriteString(partText(p.Type, p.Name))
	}
	return b.String()
}

func partText(is string, name *string) string {
	if name == nil {
		return is + "=-,"
	}
	return is + "=" + *name + ","
}

// describeQuotas asks for the quotas that a filter selects: "type=name", - for
// the default and * for any.
func describeQuotas(s *session, step string, version int16, strict bool, filter ...string) {
	req := kmsg.NewPtrDescribeClientQuotasRequest()
	req.Strict = strict
	for _, f := range filter {
		c := kmsg.NewDescribeClientQuotasRequestComponent()
		name, value, _ := strings.Cut(f, "=")
		c.EntityType, c.Match = name, quotaName(value)
		switch value {
		case "*":
			c.MatchType, c.Match = 2, nil
		case "-":
			c.MatchType = 1
		}
		req.Components = append(req.Components, c)
	}
	sendDescribe(s, step, version, req)
}

func sendDescribe(s *session, step string, version int16, req *kmsg.DescribeClientQuotasRequest) {
	label := fmt.Sprintf("%s v%d", step, version)
	resp, _ := s.quiet(version, req).(*kmsg.DescribeClientQuotasResponse)
	if resp == nil {
		s.note(label, "connection closed")
		return
	}
	for i := range resp.Entries {
		e := &resp.Entries[i]
		sort.SliceStable(e.Entity, func(a, b int) bool { return e.Entity[a].Type < e.Entity[b].Type })
		sort.SliceStable(e.Values, func(a, b int) bool { return e.Values[a].Key < e.Values[b].Key })
	}
	text := func(e kmsg.DescribeClientQuotasResponseEntry) string {
		var b strings.Builder
		for _, p := range e.Entity {
			b.WriteString(partText(p.Type, p.Name))
		}
		return b.String()
	}
	sort.SliceStable(resp.Entries, func(a, b int) bool { return text(resp.Entries[a]) < text(resp.Entries[b]) })
	s.response(label, resp)
}

// The quotas of these stories are for nobody who runs stories, or more than
// any of them needs: the default of all users is left alone.
func quotasAltered(s *session) {
	versions(0, 1, func(v int16) {
		u := fmt.Sprintf("alter%d", v)
		describeQuotas(s, "nothing", v, false, "user="+u)
		alterQuotas(s, "set", v, "user="+u+" producer_byte_rate=1000000 request_percentage=12.5", "user="+u+" client-id=app consumer_byte_rate=2e9",
			"client-id="+u+" controller_mutation_rate=0.5", "ip=10.9.8."+fmt.Sprint(v)+" connection_creation_rate=3")
		describeQuotas(s, "set", v, false, "user="+u)
		describeQuotas(s, "set", v, false, "client-id="+u)
		describeQuotas(s, "set", v, true, "ip=10.9.8."+fmt.Sprint(v))
		alterQuotas(s, "again", v, "user="+u+" producer_byte_rate=1000000")
		alterQuotas(s, "changed, one removed, one that is not there removed", v, "user="+u+" producer_byte_rate=5 request_percentage=none consumer_byte_rate=none no_such=none")
		describeQuotas(s, "changed", v, false, "user="+u)
		alterQuotas(s, "all removed", v, "user="+u+" producer_byte_rate=none", "user="+u+" client-id=app consumer_byte_rate=none", "client-id="+u+" controller_mutation_rate=none",
			"ip=10.9.8."+fmt.Sprint(v)+" connection_creation_rate=none")
		describeQuotas(s, "all removed", v, false, "user="+u)
		alterQuotas(s, "of one that has none", v, "user="+u+" producer_byte_rate=none")
	})
	req := kmsg.NewPtrAlterClientQuotasRequest()
	e := kmsg.NewAlterClientQuotasRequestEntry()
	p := kmsg.NewAlterClientQuotasRequestEntryEntity()
	p.Type, p.Name = "user", kmsg.StringPtr("dry")
	o := kmsg.NewAlterClientQuotasRequestEntryOp()
	o.Key, o.Value = "producer_byte_rate", 7
	e.Entity, e.Ops = append(e.Entity, p), append(e.Ops, o)
	req.Entries, req.ValidateOnly = append(req.Entries, e), true
	sendQuotas(s, "validate only", 1, req)
	settleQuotas(s)
	describeQuotas(s, "validate only", 1, false, "user=dry")
	req.Entries[0].Ops[0].Value = -1
	sendQuotas(s, "validate only, a bad value", 1, req)
	req.Entries = nil
	sendQuotas(s, "nothing", 1, req)
}

func quotasOdd(s *session) {
	ask := func(step string, wishes ...string) { alterQuotas(s, step, 1, wishes...) }
	for _, key := range []string{"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate", "no_such_key"} {
		for _, value := range []string{"0", "-1", "0.25", "1.5", "2147483648", "1e19", "1e300", fmt.Sprint(math.Inf(1))} {
			ask(key+" "+value, "user=odd client-id=odd "+key+"="+value, "ip=10.9.9.9 "+key+"="+value)
			describeQuotas(s, key+" "+value, 1, false, "user=odd")
			describeQuotas(s, key+" "+value, 1, false, "ip=10.9.9.9")
			ask("and away", "user=odd client-id=odd "+key+"=none", "ip=10.9.9.9 "+key+"=none")
		}
	}
	ask("no entity", "producer_byte_rate=1")
	ask("no quota", "user=odd-none")
	ask("unknown type", "group=g producer_byte_rate=1")
	ask("empty type", "=g producer_byte_rate=1")
	ask("an empty user", `user="" producer_byte_rate=1`)
	ask("an empty client id", `client-id="" producer_byte_rate=1`)
	ask("an empty address", `ip="" connection_creation_rate=1`)
	ask("no address", "ip=not.an.address.invalid connection_creation_rate=1")
	ask("a host's name", "ip=localhost connection_creation_rate=1000")
	ask("a host's name, away", "ip=localhost connection_creation_rate=none")
	ask("an address of IPv6", "ip=2001:db8::1 connection_creation_rate=1")
	describeQuotas(s, "an address of IPv6", 1, false, "ip=2001:db8::1")
	describeQuotas(s, "the same address in other words", 1, false, "ip=2001:db8:0:0:0:0:0:1")
	ask("and away", "ip=2001:db8::1 connection_creation_rate=none")
	ask("user and address", "user=odd ip=10.9.9.9 producer_byte_rate=1")
	ask("one of two keys is bad", "user=odd-two producer_byte_rate=5 no_such=1")
	describeQuotas(s, "one of two keys is bad", 1, false, "user=odd-two")
	ask("one of two entities is bad", "user=odd-good producer_byte_rate=5", "user=odd-bad producer_byte_rate=-5")
	describeQuotas(s, "one of two entities is bad", 1, false, "user=odd-good")
	ask("twice in one request", "user=odd-twice producer_byte_rate=5", "user=odd-twice producer_byte_rate=6", "user=odd-third producer_byte_rate=6")
	describeQuotas(s, "twice in one request", 1, false, "user=odd-twice")
	ask("a key twice", "user=odd-key producer_byte_rate=5 producer_byte_rate=6")
	describeQuotas(s, "a key twice", 1, false, "user=odd-key")
	ask("a type twice", "user=odd-first user=odd-second producer_byte_rate=5")
	describeQuotas(s, "a type twice", 1, false, "user=odd-first")
	describeQuotas(s, "a type twice", 1, false, "user=odd-second")
	ask("a name with signs", "user=CN=a,O=b/c client-id=x%20y producer_byte_rate=5")
	describeQuotas(s, "a name with signs", 1, false, "client-id=x%20y")
	ask("both twice", "user=odd-b client-id=odd-c producer_byte_rate=5", "client-id=odd-c user=odd-b producer_byte_rate=6")
	ask("away", "user=odd-good producer_byte_rate=none", "user=odd-twice producer_byte_rate=none", "user=odd-third producer_byte_rate=none", "user=odd-second producer_byte_rate=none",
		"user=CN=a,O=b/c client-id=x%20y producer_byte_rate=none", "user=odd-b client-id=odd-c producer_byte_rate=none")
}

func quotasFiltered(s *session) {
	alterQuotas(s, "setup", 1, "user=f1 producer_byte_rate=1e9", "user=f1 client-id=c1 producer_byte_rate=1e9", "user=f1 client-id=- producer_byte_rate=1e9",
		"user=- client-id=c1 producer_byte_rate=1e9", "client-id=c1 producer_byte_rate=1e9", "client-id=- producer_byte_rate=1e9", "ip=10.9.7.1 connection_creation_rate=9999", "ip=- connection_creation_rate=9999")
	for i, filter := range [][]string{
		{}, {"user=f1"}, {"user=-"}, {"user=*"}, {"client-id=c1"}, {"client-id=-"}, {"client-id=*"}, {"ip=10.9.7.1"}, {"ip=-"}, {"ip=*"},
		{"user=f1", "client-id=c1"}, {"user=f1", "client-id=-"}, {"user=f1", "client-id=*"}, {"user=*", "client-id=*"}, {"user=-", "client-id=*"},
		{"user=nobody"}, {`user=""`}, {"user=f1", "user=*"}, {"ip=*", "user=*"}, {"ip=-", "client-id=-"}, {"group=*"}, {"=*"}, {"group=*", "user=f1", "user=f1"},
	} {
		step := strings.TrimSpace(fmt.Sprint("filter ", i, " ", strings.Join(filter, " ")))
		describeQuotas(s, step, 1, false, filter...)
		describeQuotas(s, "strict "+step, 0, true, filter...)
	}
	odd := func(step string, match kmsg.QuotasMatchType, name *string) {
		req := kmsg.NewPtrDescribeClientQuotasRequest()
		c := kmsg.NewDescribeClientQuotasRequestComponent()
		c.EntityType, c.MatchType, c.Match = "user", match, name
		req.Components = append(req.Components, c)
		sendDescribe(s, step, 1, req)
	}
	odd("a name that is null", 0, nil)
	odd("a default with a name", 1, kmsg.StringPtr("x"))
	odd("any with a name", 2, kmsg.StringPtr("x"))
	odd("unknown match", 3, nil)
	odd("negative match", -1, nil)
	alterQuotas(s, "away", 1, "user=f1 producer_byte_rate=none", "user=f1 client-id=c1 producer_byte_rate=none", "user=f1 client-id=- producer_byte_rate=none",
		"user=- client-id=c1 producer_byte_rate=none", "client-id=c1 producer_byte_rate=none", "client-id=- producer_byte_rate=none", "ip=10.9.7.1 connection_creation_rate=none", "ip=- connection_creation_rate=none")
	describeQuotas(s, "away", 1, false)
}
