package conf

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

func TestSettingsThatCannotBeIgnoredAreRefused(t *testing.T) {
	data := map[string]string{"log.dirs": "/data"}
	for _, c := range []struct{ name, value, says string }{
		{"process.roles", "controller", "every node serves topics"},
		{"metadata.log.dir", "/elsewhere", "metadata.log.dir=/elsewhere"},
		{"transaction.two.phase.commit.enable", "true", "no two-phase commit"},
		{"authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "no authorizer"},
		{"create.topic.policy.class.name", "a.Policy", "no plugins"},
		{"alter.config.policy.class.name", "a.Policy", "no plugins"},
		{"group.coordinator.rebalance.protocols", "consumer,streams", "'classic'"},
		{"group.coordinator.rebalance.protocols", "classic,other", "must be one of"},
		{"group.share.assignors", "other", "must be one of: simple"},
		{"group.streams.assignors", "sticky,other", "must be one of: sticky"},
	} {
		given := maps.Clone(data)
		given[c.name] = c.value
		if _, err := ParseBroker(given); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s=%s: %v, want a refusal that says %q", c.name, c.value, err, c.says)
		}
	}
	for _, c := range [][2]string{
		{"process.roles", "broker"}, {"process.roles", "broker,controller"}, {"process.roles", "controller,broker"},
		{"metadata.log.dir", "/data/"}, {"transaction.two.phase.commit.enable", "false"}, {"authorizer.class.name", ""},
		{"group.coordinator.rebalance.protocols", "classic"}, {"group.share.assignors", "simple"}, {"group.streams.assignors", "sticky"},
	} {
		given := maps.Clone(data)
		given[c[0]] = c[1]
		if _, err := ParseBroker(given); err != nil {
			t.Errorf("%s=%s: %v", c[0], c[1], err)
		}
	}
	d, _ := Lookup(KindGroup, "streams.assignor.name")
	if _, err := d.Parse("other"); !errors.Is(err, ErrInvalid) {
		t.Errorf("streams.assignor.name=other: %v", err)
	}
}
