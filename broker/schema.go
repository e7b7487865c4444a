package broker

import (
	_ "embed"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// requests.txt is the shape of every request, from Kafka's message definitions. One field a line, nested by indentation:
//
//	KEY NAME FIRST-FLEXIBLE-VERSION
//	  FIELD [TYPE VERSIONS [tag N]]
//
// It exists so that a request's bytes can be measured before anything is decoded (guard.go). TestSchemaAgreesWithKmsg
// compares it with kmsg's own encoding, version by version.
//
//go:embed requests.txt
var requestsText string

type fieldType uint8

const (
	typeFixed    fieldType = iota // size bytes
	typeString                    // nullable or not: the bytes say
	typeBytes                     // likewise
	typeStruct                    // fields of its own, tagged fields in flexible versions
	typeOptional                  // one byte, -1 for null, then a struct
)

// field is one field of a request or of a struct in it.
type field struct {
	name     string
	kind     fieldType
	array    bool
	size     int // typeFixed: bytes on the wire
	min, max int16
	tag      int // -1: none
	memory   int // what one element takes when decoded, without what it points to
	fields   []field
}

// schema is the shape of one request.
type schema struct {
	key      int16
	name     string
	flexible int16
	body     field
}

// schemas by key, for the keys in requests.txt.
var schemas = parseSchemas(requestsText)

const versionMax = 1<<15 - 1

func parseSchemas(text string) map[int16]*schema {
	out := map[int16]*schema{}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := 0; i < len(lines); {
		var s schema
		var flexible string
		if _, err := fmt.Sscanf(lines[i], "%d %s %s", &s.key, &s.name, &flexible); err != nil {
			panic(fmt.Sprintf("broker: requests.txt line %d: %v", i+1, err))
		}
		s.flexible = versionMax
		if flexible != "-" {
			s.flexible = mustInt16(flexible)
		}
		req := kmsg.RequestForKey(s.key)
		if req == nil {
			panic(fmt.Sprintf("broker: requests.txt names unknown key %d", s.key))
		}
		s.body = field{name: s.name, kind: typeStruct, tag: -1}
		i = parseFields(lines, i+1, 1, &s.body, reflect.TypeOf(req).Elem())
		out[s.key] = &s
	}
	return out
}

// parseFields reads the fields at one depth and returns the first line that is not one of them. t is the kmsg type that
// they decode into.
func parseFields(lines []string, i, depth int, parent *field, t reflect.Type) int {
	for i < len(lines) && strings.HasPrefix(lines[i], strings.Repeat("  ", depth)) {
		words := strings.Fields(lines[i])
		f := field{name: words[0], tag: -1, max: versionMax}
		kind, array := strings.CutPrefix(words[1], "[]")
		f.array = array
		low, high, bounded := strings.Cut(strings.TrimSuffix(words[2], "+"), "-")
		f.min = mustInt16(low)
		if bounded {
			f.max = mustInt16(high)
		}
		if len(words) == 5 {
			f.tag = int(mustInt16(words[4]))
		}
		ft, ok := t.FieldByName(f.name)
		if !ok {
			panic(fmt.Sprintf("broker: %s has no field %s", t, f.name))
		}
		elem := ft.Type
		if array {
			elem = elem.Elem()
		}
		i++
		switch kind {
		case "string":
			f.kind = typeString
		case "bytes":
			f.kind = typeBytes
		case "struct", "optional":
			if f.kind = typeStruct; kind == "optional" {
				f.kind = typeOptional
				elem = elem.Elem()
			}
			i = parseFields(lines, i, depth+1, &f, elem)
		default:
			f.kind, f.size = typeFixed, map[string]int{"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uuid": 16}[kind]
			if f.size == 0 {
				panic("broker: requests.txt: unknown type " + kind)
			}
		}
		f.memory = int(elem.Size())
		parent.fields = append(parent.fields, f)
	}
	return i
}

func mustInt16(s string) int16 {
	n, err := strconv.ParseInt(s, 10, 16)
	if err != nil {
		panic("broker: requests.txt: " + err.Error())
	}
	return int16(n)
}
