package broker

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/fuzztest"
)

// randomize fills a kmsg struct with random values of bounded size.
func randomize(r *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if r.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			if d, ok := v.Interface().(interface{ Default() }); ok {
				d.Default()
			}
			randomize(r, v.Elem(), depth)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[kmsg.Tags]() {
			if r.IntN(8) == 0 {
				v.Addr().Interface().(*kmsg.Tags).Set(uint32(100+r.IntN(9)), make([]byte, r.IntN(9)))
			}
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Name == "Version" && depth == 0 {
				continue
			}
			randomize(r, v.Field(i), depth+1)
		}
	case reflect.Slice:
		n := r.IntN(4)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			randomize(r, v.Index(i), depth+1)
		}
	case reflect.Array:
		for i := range v.Len() {
			randomize(r, v.Index(i), depth+1)
		}
	case reflect.String:
		v.SetString(string(make([]byte, r.IntN(20))))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64()) >> (64 - v.Type().Bits()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(r.Uint64() >> (64 - v.Type().Bits()))
	case reflect.Float64:
		v.SetFloat(r.Float64())
	}
}

func TestSchemaAgreesWithKmsg(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tries := 200
	if testing.Short() {
		tries = 20
	}
	for key, s := range schemas {
		req := kmsg.RequestForKey(key)
		for v := int16(0); v <= req.MaxVersion(); v++ {
			for range tries {
				req := kmsg.RequestForKey(key)
				req.SetVersion(v)
				randomize(r, reflect.ValueOf(req).Elem(), 0)
				b := req.AppendTo(nil)
				g := guard{rest: b, version: v, flexible: req.IsFlexible(), limit: 1 << 30}
				if req.IsFlexible() != (v >= s.flexible) {
					t.Fatalf("%s version %d: flexible is %v", s.name, v, req.IsFlexible())
				}
				g.fields(&s.body)
				if g.bad || len(g.rest) != 0 {
					t.Fatalf("%s version %d: walk ended with %d bytes left, bad=%v\n%x", s.name, v, len(g.rest), g.bad, b)
				}
				for cut := range len(b) {
					g := guard{rest: b[:cut], version: v, flexible: req.IsFlexible(), limit: 1 << 30}
					if g.fields(&s.body); !g.bad && g.version >= s.flexible {
						t.Fatalf("%s version %d: %d of %d bytes pass", s.name, v, cut, len(b))
					}
				}
			}
		}
	}
}

func TestEveryServedKeyHasASchema(t *testing.T) {
	for _, a := range apis {
		if schemas[a.key] == nil {
			t.Errorf("%s (%d) is not in requests.txt", a.name, a.key)
		}
	}
}

func TestGuardAllocatesNothing(t *testing.T) {
	q := produceRequest(9, -1, "events", [16]byte{}, map[int32][]byte{0: oneBatch(t, "x")})
	b := q.AppendTo(nil)
	if n := testing.AllocsPerRun(100, func() {
		if err := checkRequest(schemas[0], 9, b); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestTinyBodiesCannotAllocateMuch(t *testing.T) {
	huge := []byte{0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff}
	for key, s := range schemas {
		for v := int16(0); v <= kmsg.RequestForKey(key).MaxVersion(); v++ {
			for _, body := range [][]byte{huge, bytes.Repeat([]byte{0xff}, 8), bytes.Repeat([]byte{0}, 64), bytes.Repeat([]byte{1}, 4096), bytes.Repeat([]byte{2}, 4096)} {
				checkDecodeMemory(t, s, v, body)
			}
		}
	}
}

// checkDecodeMemory decodes what passes the guard and holds its memory to the promise: eight times the input, or the floor.
func checkDecodeMemory(t *testing.T, s *schema, version int16, body []byte) {
	t.Helper()
	if checkRequest(s, version, body) != nil {
		return
	}
	fuzztest.Within(t, 2*guardFloor+guardFactor*len(body), func() {
		req := kmsg.RequestForKey(s.key)
		req.SetVersion(version)
		req.ReadFrom(body)
	})
}
