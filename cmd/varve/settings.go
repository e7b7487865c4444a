package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/varvelog/varve/meta/conf"
)

// settings are broker settings by Kafka's name, gathered from, in rising
// order of strength: a file, the environment, and --set.
type settings map[string]string

// envPrefix marks environment variables that are settings: VARVE_NUM_PARTITIONS
// is num.partitions, VARVE_TIER_STORE is varve.tier.store.
const envPrefix = "VARVE_"

// notSettings are variables with the prefix that the tools read.
var notSettings = map[string]bool{"VARVE_BOOTSTRAP": true, "VARVE_HTTP": true}

// testVariables steer the project's own tests and build.
var testVariables = map[string]bool{
	"VARVE_LONG": true, "VARVE_S3_TEST": true, "VARVE_CLIENTS": true, "VARVE_CLIENTS_BOOTSTRAP": true, "VARVE_EVENTS": true,
	"VARVE_STORE": true, "VARVE_CI_CACHE": true, "VARVE_META_KILL_DIR": true, "VARVE_OBJSTORE_CHILD": true, "VARVE_PARITY_SELF": true,
	"VARVE_SEED": true, "VARVE_MUTANT": true,
}

// serviceLink matches what Kubernetes puts into every container's environment
// for a Service whose name begins with "varve".
var serviceLink = regexp.MustCompile(`^VARVE_(.+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// addFile reads a YAML file. Names may be written whole (`log.dirs: …`) or
// nested (`log: {dirs: …}`).
func (s settings) addFile(path string) error {
	k := koanf.New(".")
	if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("config file %s does not exist", path)
		}
		return fmt.Errorf("config file %s: %w", path, err)
	}
	all := k.All()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(all)) {
		errs = append(errs, s.add(name, settingText(all[name]), "config file "+path))
	}
	return errors.Join(errs...)
}

// settingText writes a YAML value as Kafka's property files would.
func settingText(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case []any:
		parts := make([]string, len(v))
		for i, part := range v {
			parts[i] = settingText(part)
		}
		return strings.Join(parts, ",")
	default:
		return fmt.Sprint(v)
	}
}

// addEnvironment takes every VARVE_ variable but those of the tools. An
// unknown one is an error: a misspelt setting must not be ignored. Only what
// Kubernetes or the project's tests put there is left out, and named.
func (s settings) addEnvironment(environ []string) (ignored []string, err error) {
	var errs []error
	for _, pair := range environ {
		variable, value, _ := strings.Cut(pair, "=")
		bare, ok := strings.CutPrefix(variable, envPrefix)
		if !ok || notSettings[variable] {
			continue
		}
		name := strings.ToLower(strings.ReplaceAll(bare, "_", "."))
		if _, known := conf.Lookup(conf.KindBroker, name); !known {
			if _, own := conf.Lookup(conf.KindBroker, "varve."+name); own {
				name = "varve." + name
			}
		}
		if _, known := conf.Lookup(conf.KindBroker, name); !known && (testVariables[variable] || serviceLink.MatchString(variable)) {
			ignored = append(ignored, variable)
			continue
		}
		errs = append(errs, s.add(name, value, "environment variable "+variable))
	}
	slices.Sort(ignored)
	return ignored, errors.Join(errs...)
}

// addPairs takes NAME=VALUE arguments.
func (s settings) addPairs(pairs []string) error {
	var errs []error
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			errs = append(errs, fmt.Errorf("--set %q: write NAME=VALUE, such as --set num.partitions=6", pair))
			continue
		}
		errs = append(errs, s.add(name, value, "--set"))
	}
	return errors.Join(errs...)
}

func (s settings) add(name, value, source string) error {
	if err := conf.CheckNames(conf.KindBroker, map[string]string{name: value}); err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	s[name] = value
	return nil
}

// names lists what is set, sorted, for the log.
func (s settings) names() []string {
	names := make([]string, 0, len(s))
	for name := range s {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// inMemory says whether the archive would live in this process only.
func (s settings) inMemory() bool {
	return strings.HasPrefix(s["varve.tier.store"], "mem:")
}
