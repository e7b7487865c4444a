package meta

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// quotas reads a wish from each line: `type=name … key=value …`, where the name
// - is the default, and the value none removes.
func (s *script) quotas(out *strings.Builder, d *datadriven.TestData) error {
	var wishes []QuotaChange
	for _, line := range strings.Split(d.Input, "\n") {
		var w QuotaChange
		for _, word := range strings.Fields(line) {
			name, value, _ := strings.Cut(word, "=")
			switch n, err := strconv.ParseFloat(value, 64); {
			case value == "none":
				w.Ops = append(w.Ops, QuotaOp{Key: name, Remove: true})
			case err == nil:
				w.Ops = append(w.Ops, QuotaOp{Key: name, Value: n})
			default:
				w.Entity = append(w.Entity, quotaPart(name, value))
			}
		}
		wishes = append(wishes, w)
	}
	results, changes, err := decideQuotas(s.img, wishes)
	if err != nil {
		return err
	}
	for _, r := range results {
		text := "done"
		if r.Err != nil {
			text = describe(r.Err)
		}
		fmt.Fprintf(out, "%s: %s\n", quotaPartsText(r.Entity), text)
	}
	return s.apply(changes)
}

func quotaPart(is, name string) QuotaPart {
	switch name {
	case "-":
		return QuotaPart{Type: is}
	case "empty":
		name = ""
	}
	return QuotaPart{is, &name}
}

// filter reads a filter's parts from its arguments: `type=name`, * for any and -
// for the default.
func (s *script) filter(out *strings.Builder, d *datadriven.TestData) error {
	f := QuotaFilter{}
	for _, line := range strings.Fields(d.Input) {
		name, value, _ := strings.Cut(line, "=")
		part := QuotaFilterPart{Type: name, Name: &value}
		switch value {
		case "*":
			part.Match, part.Name = MatchAny, nil
		case "-":
			part.Match, part.Name = MatchDefault, nil
		}
		f.Parts = append(f.Parts, part)
	}
	f.Strict = d.HasArg("strict")
	list, err := s.img.FilterQuotas(f)
	if err != nil {
		return err
	}
	for _, q := range list {
		fmt.Fprintf(out, "%s %v\n", q.Entity, q.Values)
	}
	return nil
}

func TestQuotaValuesAreWhatAKeyCanBe(t *testing.T) {
	e := QuotaEntity{User: QuotaName{Kind: DefaultQuota}}
	for _, v := range []float64{0, -1, math.NaN(), math.Inf(-1)} {
		for key, k := range quotaKeys {
			of := e
			if k.ip {
				of = QuotaEntity{IP: QuotaName{Kind: DefaultQuota}}
			}
			if err := checkQuota(of, QuotaOp{Key: key, Value: v}); !errors.Is(err, ErrInvalidRequest) {
				t.Errorf("%s=%v: %v", key, v, err)
			}
		}
	}
	for _, o := range []QuotaOp{{Key: ProducerByteRate, Value: 1.5}, {Key: ProducerByteRate, Value: math.Inf(1)}, {Key: ConnectionCreationRate, Value: 1}} {
		if err := checkQuota(e, o); err == nil {
			t.Errorf("%+v is allowed", o)
		}
	}
}

// TestQuotasEndWithTheirLevel: a snapshot at the level before cannot say them.
func TestQuotasEndWithTheirLevel(t *testing.T) {
	img := atLevel(t, levelQuotas, SetQuotas{Entity: QuotaEntity{User: QuotaName{NamedQuota, "u"}}, Set: []QuotaValue{{ProducerByteRate, 1}}})
	down := FeatureUpdate{VersionFeature, levelListeners, SafelyDowngradeFeature}
	if _, err := decideFeatures(img, 1, []FeatureUpdate{down}); err == nil || !strings.Contains(err.Error(), "quotas of 1 clients") {
		t.Errorf("the level is lowered below what there is: %v", err)
	}
	down.Upgrade = UnsafelyDowngradeFeature
	changes, err := decideFeatures(img, 1, []FeatureUpdate{down})
	if err != nil {
		t.Fatal(err)
	}
	next, err := img.Apply(Command{Base: img.Index, Changes: changes}, 2)
	if err != nil || len(next.Quotas()) != 0 || len(img.Quotas()) != 1 {
		t.Errorf("%v, %v", next.Quotas(), err)
	}
	_, changes, err = decideQuotas(next, []QuotaChange{{Entity: []QuotaPart{{Type: QuotaUser}}, Ops: []QuotaOp{{Key: ProducerByteRate, Value: 1}}}})
	if err != nil || !errors.Is(checkLevel(next, changes), ErrUnsupportedLevel) {
		t.Errorf("quotas at a level that has none: %v, %v", changes, err)
	}
}

func TestTooManyQuotasAtOnceAreRefused(t *testing.T) {
	w := QuotaChange{Entity: []QuotaPart{{Type: QuotaUser}}, Ops: make([]QuotaOp, quotaOpsMax+1)}
	if _, _, err := decideQuotas(newImage(), []QuotaChange{w}); !errors.Is(err, ErrPolicyViolation) {
		t.Error(err)
	}
}

// TestManyQuotasAreSetAtOnce: what one command may hold costs little more than
// one list, and comes to the same as one change after the other.
func TestManyQuotasAreSetAtOnce(t *testing.T) {
	user := func(i int) QuotaEntity {
		return QuotaEntity{User: QuotaName{Kind: NamedQuota, Name: fmt.Sprintf("user-%05d", i*7919%quotaOpsMax)}}
	}
	set := func(e QuotaEntity, value float64) SetQuotas {
		return SetQuotas{Entity: e, Set: []QuotaValue{{ProducerByteRate, value}}}
	}
	var many []Change
	for i := range quotaOpsMax {
		many = append(many, set(user(i), 1))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	full, err := newImage().Apply(Command{Changes: many}, 1)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	allocated := after.TotalAlloc - before.TotalAlloc
	if most := uint64(64 << 20); allocated > most {
		t.Errorf("%d bytes for %d quotas, want at most %d", allocated, quotaOpsMax, most)
	}
	if n := len(full.Quotas()); n != quotaOpsMax {
		t.Fatalf("%d quotas", n)
	}
	few := []Change{
		set(user(3), 2), SetQuotas{Entity: user(4), Remove: []string{ProducerByteRate}},
		SetQuotas{Entity: user(3), Set: []QuotaValue{{ConsumerByteRate, 5}}}, set(user(4), 9),
		SetQuotas{Entity: user(0), Remove: []string{ProducerByteRate}}, SetQuotas{Entity: user(quotaOpsMax - 1), Remove: []string{ProducerByteRate}},
		SetQuotas{Entity: QuotaEntity{IP: QuotaName{Kind: DefaultQuota}}, Set: []QuotaValue{{ConnectionCreationRate, 1}}},
	}
	encoded := full.encodeQuotas()
	together, err := full.Apply(Command{Base: full.Index, Changes: few}, 2)
	if err != nil {
		t.Fatal(err)
	}
	one := full.clone()
	for _, c := range few {
		if err := c.apply(one, 2); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(together.encodeQuotas(), one.encodeQuotas()) {
		t.Error("changes of one command come to something else than one after the other")
	}
	if len(together.Quotas()) != quotaOpsMax-1 || !bytes.Equal(full.encodeQuotas(), encoded) {
		t.Errorf("%d quotas; the image before must stay as it is", len(together.Quotas()))
	}
}
