package parity

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"reflect"
	"regexp"
	"sort"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	hotbatch "github.com/varvelog/varve/hot/batch"
)

// transcript is what one broker answered in one story, as lines of
// `step path: value`.
type transcript struct {
	lines []string
	names map[string]string // real value → the name it goes by
	count map[string]int    // names given out, by kind
}

func newTranscript() *transcript {
	return &transcript{names: map[string]string{}, count: map[string]int{}}
}

// name gives a value that differs from cluster to cluster a name by its order
// of appearance: topic id 1, producer id 2.
func (t *transcript) name(kind, value string) string {
	key := kind + " " + value
	if n, ok := t.names[key]; ok {
		return n
	}
	t.count[kind]++
	n := fmt.Sprintf("<%s %d>", kind, t.count[kind])
	t.names[key] = n
	return n
}

func (t *transcript) note(step, format string, args ...any) {
	t.lines = append(t.lines, step+": "+fmt.Sprintf(format, args...))
}

// response writes every field of an answer.
func (t *transcript) response(step string, resp kmsg.Response) {
	t.value(step, "", reflect.ValueOf(resp).Elem())
}

// moments are times of the run inside messages.
var moments = regexp.MustCompile(`\b1[789]\d{11}\b`)

// fields that say nothing about behaviour.
var ignoredFields = map[string]bool{
	"Version": true, "UnknownTags": true, "ThrottleMillis": true,
	"FinalizedFeaturesEpoch": true, "TotalBytes": true, "UsableBytes": true,
}

// naming gives the fields whose values belong to one cluster, and the kind of
// name to put in their place.
var naming = map[string]string{
	"TopicID": "topic id", "ClusterID": "cluster id", "ProducerID": "producer id",
	"Host": "host", "Port": "port", "SessionID": "session", "Dir": "dir",
	"MemberID": "member", "LeaderID": "leader member", "ProtocolMetadata": "metadata",
}

// nowFields hold a moment of the run: only whether they are set is compared.
var nowFields = map[string]bool{
	"LogAppendTime": true, "LastTimestamp": true, "CommitTimestamp": true, "StartTimestamp": true,
}

func (t *transcript) value(step, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			t.note(step+path, "null")
			return
		}
		t.value(step, path, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if ignoredFields[f.Name] || !f.IsExported() {
				continue
			}
			t.field(step, path+" "+f.Name, f.Name, v.Field(i))
		}
	case reflect.Slice:
		t.slice(step, path, v)
	case reflect.Array:
		t.note(step+path, "%x", v.Interface())
	case reflect.String:
		t.note(step+path, "%q", moments.ReplaceAllString(v.String(), "<ms>"))
	default:
		t.note(step+path, "%v", v.Interface())
	}
}

func (t *transcript) field(step, path, name string, v reflect.Value) {
	switch {
	case name == "ErrorCode":
		t.note(step+path, "%s", errorName(int16(v.Int())))
	case naming[name] != "":
		t.note(step+path, "%s", t.named(naming[name], v))
	case nowFields[name]:
		t.note(step+path, "set=%v", v.Int() > 0)
	case name == "RecordBatches":
		t.records(step, path, v.Bytes())
	default:
		t.value(step, path, v)
	}
}

func errorName(code int16) string {
	if code == 0 {
		return "none"
	}
	if e := kerr.TypedErrorForCode(code); e != nil {
		return e.Message
	}
	return fmt.Sprint(code)
}

// named replaces a value by its name; values that mean "none" stay.
func (t *transcript) named(kind string, v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "null"
		}
		return t.named(kind, v.Elem())
	case reflect.Array:
		raw := make([]byte, v.Len())
		reflect.Copy(reflect.ValueOf(raw), v)
		if strings.Trim(string(raw), "\x00") == "" {
			return "zero"
		}
		return t.name(kind, base64.RawURLEncoding.EncodeToString(raw))
	case reflect.String:
		if v.Len() == 0 {
			return `""`
		}
		return t.name(kind, v.String())
	case reflect.Int32, reflect.Int64:
		if v.Int() <= 0 {
			return fmt.Sprint(v.Int())
		}
		return t.name(kind, fmt.Sprint(v.Int()))
	default:
		return fmt.Sprint(v.Interface())
	}
}

// unordered are lists whose order Kafka does not promise, and the field that
// orders them here.
var unordered = map[string]string{
	"Topics": "Topic", "Partitions": "Partition", "Configs": "Name", "ApiKeys": "ApiKey", "Brokers": "NodeID",
	"SupportedFeatures": "Name", "FinalizedFeatures": "Name", "Resources": "ResourceName",
	"Groups": "Group", "ConfigResources": "Name", "ConfigSynonyms": "", "Members": "MemberID",
}

func (t *transcript) slice(step, path string, v reflect.Value) {
	if v.IsNil() {
		t.note(step+path, "null")
		return
	}
	if b, ok := v.Interface().([]byte); ok {
		t.note(step+path, "0x%s", hex.EncodeToString(b))
		return
	}
	list := make([]reflect.Value, 0, v.Len())
	for i := range v.Len() {
		if e := v.Index(i); !ownSetting(e) {
			list = append(list, e)
		}
	}
	last := path[strings.LastIndexByte(path, ' ')+1:]
	by := unordered[last]
	if by != "" && len(list) > 0 && list[0].Kind() == reflect.Struct {
		key := func(v reflect.Value) string {
			if kind := naming[by]; kind != "" { // by the name it goes by; those that have none yet come first
				return t.names[kind+" "+sortKey(v, by)]
			}
			return sortKey(v, by)
		}
		sort.SliceStable(list, func(i, j int) bool { return key(list[i]) < key(list[j]) })
	}
	t.note(step+path, "%d", len(list))
	for i, e := range list {
		label := fmt.Sprint(i)
		if by != "" && e.Kind() == reflect.Struct {
			if key := sortKey(e, by); key != "" && naming[by] == "" {
				label = key
			}
		}
		t.value(step, path+"["+label+"]", e)
	}
}

// ownSetting reports whether a list's element is one of Varve's own settings,
// which Kafka does not have and which are listed beside Kafka's.
func ownSetting(v reflect.Value) bool {
	if v.Kind() != reflect.Struct {
		return false
	}
	name := v.FieldByName("Name")
	return name.IsValid() && name.Kind() == reflect.String && strings.HasPrefix(name.String(), "varve.")
}

func sortKey(v reflect.Value, field string) string {
	f := v.FieldByName(field)
	switch {
	case !f.IsValid():
		return ""
	case f.Kind() == reflect.Pointer && f.IsNil():
		return ""
	case f.Kind() == reflect.Pointer:
		f = f.Elem()
	}
	if f.CanInt() {
		return fmt.Sprintf("%05d", f.Int())
	}
	return fmt.Sprint(f.Interface())
}

// records writes the batches of a fetch: their headers, and their bodies as
// they are, since a broker serves what it was given.
func (t *transcript) records(step, path string, b []byte) {
	if b == nil {
		t.note(step+path, "null")
		return
	}
	for i := 0; len(b) > 0; i++ {
		var batch kmsg.RecordBatch
		if err := batch.ReadFrom(b); err != nil {
			t.note(step+path, "%d bytes of a cut batch", len(b))
			return
		}
		t.note(fmt.Sprintf("%s%s[%d]", step, path, i),
			"base %d epoch %d attributes %d lastDelta %d count %d producer epoch %d sequence %d times %s %s body %s",
			batch.FirstOffset, batch.PartitionLeaderEpoch, batch.Attributes, batch.LastOffsetDelta, batch.NumRecords,
			batch.ProducerEpoch, batch.FirstSequence, sinceRun(batch.FirstTimestamp), batchMax(&batch), body(b[:12+batch.Length]))
		b = b[12+batch.Length:]
	}
}

// sinceRun is a moment as its distance to the run's clock, where it is near it.
func sinceRun(millis int64) string {
	if d := millis - recent; -1e9 < d && d < 1e9 {
		return fmt.Sprintf("run%+d", d)
	}
	return fmt.Sprint(millis)
}

func batchMax(b *kmsg.RecordBatch) string {
	if b.Attributes&8 != 0 {
		return "appended"
	}
	return sinceRun(b.MaxTimestamp)
}

// body is what a batch holds: its bytes, or, where a broker may have compressed
// them itself, what they inflate to.
func body(raw []byte) string {
	b := hotbatch.Batch(raw)
	if b.Codec() == hotbatch.None {
		return fmt.Sprintf("0x%x", raw[hotbatch.HeaderSize:])
	}
	digest := sha256.New()
	for r, err := range b.Records(hotbatch.Limits{}) {
		if err != nil {
			return err.Error()
		}
		at := sinceRun(r.Timestamp)
		if b.LogAppendTime() {
			at = "appended"
		}
		fmt.Fprintf(digest, "%d %s %q %q %v\n", r.Offset, at, r.Key, r.Value, r.Headers)
	}
	return fmt.Sprintf("with digest %x", digest.Sum(nil)[:8])
}
