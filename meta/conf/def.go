package conf

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind says what a setting belongs to.
type Kind int

// The kinds of settings.
const (
	KindTopic Kind = iota + 1
	KindBroker
	KindGroup
)

func (k Kind) String() string {
	switch k {
	case KindTopic:
		return "topic"
	case KindBroker:
		return "broker"
	case KindGroup:
		return "group"
	}
	return "kind " + strconv.Itoa(int(k))
}

// Type is a setting's type; the numbers are those of DescribeConfigs.
// Wire format: do not renumber.
type Type int8

// The types of settings.
const (
	Boolean  Type = 1
	String   Type = 2
	Int      Type = 3
	Short    Type = 4
	Long     Type = 5
	Double   Type = 6
	List     Type = 7
	Class    Type = 8
	Password Type = 9
)

var typeNames = map[Type]string{
	Boolean: "BOOLEAN", String: "STRING", Int: "INT", Short: "SHORT", Long: "LONG",
	Double: "DOUBLE", List: "LIST", Class: "CLASS", Password: "PASSWORD",
}

func (t Type) String() string { return typeNames[t] }

// Synonym names a broker setting that gives a topic setting its default.
type Synonym struct {
	Name   string
	Factor int64 // what one unit of the broker setting is in the topic's: 1 or a number of milliseconds
}

// Def describes one setting.
type Def struct {
	Name      string
	Type      Type
	Default   string // as text; "" with Null set means Kafka's null
	Null      bool   // the default is null
	Doc       string
	Synonym   string    // for a topic or group setting: the first of Synonyms, or ""
	Synonyms  []Synonym // broker settings that give the default, the strongest first
	ReadOnly  bool      // only a restart changes it
	Dynamic   bool      // the opposite: changes while the broker runs
	Sensitive bool      // never shown
	Internal  bool      // works, but is not listed
	Check     func(string) error
}

// Parse reads a value by the setting's type and rule. It returns a bool, int64,
// float64, string or []string; the error wraps ErrInvalid.
func (d Def) Parse(text string) (any, error) {
	text = strings.TrimSpace(text)
	v, err := d.parseType(text)
	if err != nil {
		return nil, err
	}
	if d.Check != nil {
		if err := d.Check(text); err != nil {
			var whole *Error
			if errors.As(err, &whole) {
				return nil, err
			}
			return nil, invalid(d.Name, d.show(v), err.Error())
		}
	}
	return v, nil
}

func (d Def) parseType(text string) (any, error) {
	bits := 0
	switch d.Type {
	case Boolean:
		switch {
		case strings.EqualFold(text, "true"):
			return true, nil
		case strings.EqualFold(text, "false"):
			return false, nil
		}
		return nil, invalid(d.Name, text, "Expected value to be either true or false")
	case Short:
		bits = 16
	case Int:
		bits = 32
	case Long:
		bits = 64
	case Double:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, invalid(d.Name, text, "Not a number of type DOUBLE")
		}
		return f, nil
	case List:
		return splitList(text), nil
	default:
		return text, nil
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		return nil, invalid(d.Name, text, "Not a number of type "+d.Type.String())
	}
	return n, nil
}

// Canonical returns the text under which Kafka shows a valid value: numbers
// without leading zeros, lists without spaces. An invalid value is returned
// as it is.
func (d Def) Canonical(text string) string {
	v, err := d.Parse(text)
	if err != nil {
		return text
	}
	if l, ok := v.([]string); ok {
		return strings.Join(l, ",")
	}
	return d.show(v)
}

// show prints a parsed value as Java's toString does.
func (d Def) show(v any) string {
	switch v := v.(type) {
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	case float64:
		return javaDouble(v)
	}
	return fmt.Sprint(v)
}

// javaDouble prints like Java's Double.toString: plain from 1e-3 to 1e7, and
// always with a fraction.
func javaDouble(f float64) string {
	if a := max(f, -f); a != 0 && (a < 1e-3 || a >= 1e7) {
		s := strconv.FormatFloat(f, 'E', -1, 64)
		mantissa, exponent, _ := strings.Cut(s, "E")
		if !strings.Contains(mantissa, ".") {
			mantissa += ".0"
		}
		sign := ""
		if strings.HasPrefix(exponent, "-") {
			sign = "-"
		}
		return mantissa + "E" + sign + strings.TrimLeft(exponent, "+-0")
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func splitList(text string) []string {
	if text == "" {
		return []string{}
	}
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// An option completes a Def in a table.
type option func(*Def)

func null(d *Def)      { d.Null = true }
func dynamic(d *Def)   { d.Dynamic = true }
func internal(d *Def)  { d.Internal = true }
func sensitive(d *Def) { d.Sensitive = true }

const (
	minuteMillis = 60_000
	hourMillis   = 60 * minuteMillis
)

// from names the broker settings that give the default, the strongest first.
// A name that ends in .hours or .minutes is converted to milliseconds.
func from(names ...string) option {
	return func(d *Def) {
		for _, n := range names {
			s := Synonym{Name: n, Factor: 1}
			switch {
			case strings.HasSuffix(n, ".hours"):
				s.Factor = hourMillis
			case strings.HasSuffix(n, ".minutes"):
				s.Factor = minuteMillis
			}
			d.Synonyms = append(d.Synonyms, s)
		}
		d.Synonym = names[0]
	}
}

func check(f func(string) error) option { return func(d *Def) { d.Check = f } }

func def(name string, t Type, value, doc string, options ...option) Def {
	d := Def{Name: name, Type: t, Default: value, Doc: doc}
	for _, o := range options {
		o(&d)
	}
	return d
}

// table is a sorted set of settings with an index by name.
type table struct {
	defs   []Def
	byName map[string]int
}

func newTable(kind Kind, groups ...[]Def) *table {
	t := &table{byName: make(map[string]int)}
	for _, g := range groups {
		t.defs = append(t.defs, g...)
	}
	slices.SortFunc(t.defs, func(a, b Def) int { return strings.Compare(a.Name, b.Name) })
	for i := range t.defs {
		d := &t.defs[i]
		if kind != KindBroker {
			d.Dynamic = true
		}
		d.ReadOnly = !d.Dynamic
		if _, twice := t.byName[d.Name]; twice {
			panic("conf: setting defined twice: " + d.Name)
		}
		t.byName[d.Name] = i
	}
	return t
}

var (
	topicTable  = newTable(KindTopic, topicDefs)
	brokerTable = newTable(KindBroker, brokerLogDefs, brokerNetDefs, brokerReplicaDefs, brokerRemoteDefs, brokerGroupDefs, brokerTxnDefs, brokerServerDefs, brokerSSLDefs, brokerVarveDefs)
	groupTable  = newTable(KindGroup, groupDefs)
)

func tableOf(kind Kind) *table {
	switch kind {
	case KindTopic:
		return topicTable
	case KindBroker:
		return brokerTable
	case KindGroup:
		return groupTable
	}
	panic("conf: no such kind of setting")
}

// TopicDefs returns every topic setting, sorted by name.
func TopicDefs() []Def { return slices.Clone(topicTable.defs) }

// BrokerDefs returns every broker setting, sorted by name.
func BrokerDefs() []Def { return slices.Clone(brokerTable.defs) }

// GroupDefs returns every group setting, sorted by name.
func GroupDefs() []Def { return slices.Clone(groupTable.defs) }

// Lookup finds one setting by name. A broker's setting for one listener,
// listener.name.NAME.ssl.…, is the general one by another name.
func Lookup(kind Kind, name string) (Def, bool) {
	t := tableOf(kind)
	if i, ok := t.byName[name]; ok {
		return t.defs[i], true
	}
	if _, general, ok := splitListenerSetting(name); ok && kind == KindBroker {
		d, found := Lookup(kind, general)
		d.Name, d.Default, d.Null = name, "", true
		return d, found
	}
	return Def{}, false
}

// CheckNames returns an error that wraps ErrUnknown for the first name, in
// alphabetical order, that is no setting of this kind. The message is Kafka's,
// with the nearest known name added.
func CheckNames(kind Kind, values map[string]string) error {
	names := make([]string, 0, len(values))
	for n := range values {
		if _, ok := Lookup(kind, n); !ok {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return unknown(kind, names[0])
}

func unknown(kind Kind, name string) error {
	message := fmt.Sprintf("Unknown %s config name: %s", kind, name)
	if near := Nearest(kind, name); near != "" {
		message += fmt.Sprintf(" (did you mean %s?)", near)
	}
	return &Error{Name: name, Message: message, kind: ErrUnknown}
}
