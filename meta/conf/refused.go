package conf

import (
	"path/filepath"
	"slices"
)

// checkRefusals refuses settings that Kafka knows and that it would be dangerous to take and ignore: who sets one counts on
// what it does. Each refusal says what can stand instead.
func (b *Broker) checkRefusals(v parsed) error {
	if !slices.Contains(b.ProcessRoles, "broker") {
		return contradiction("process.roles=controller: every node serves topics; set process.roles=broker,controller")
	}
	if dir := b.MetadataLogDir; dir != "" && (len(b.LogDirs) == 0 || filepath.Clean(dir) != filepath.Clean(b.LogDirs[0])) {
		return contradiction("metadata.log.dir=%s: the metadata log lives in the data directory; leave it out, or name that of log.dirs", dir)
	}
	if v.flag("transaction.two.phase.commit.enable") {
		return contradiction("transaction.two.phase.commit.enable=true: there is no two-phase commit (KIP-939), and a prepared transaction would be aborted at its timeout")
	}
	for _, plugin := range []struct{ name, instead string }{
		{"authorizer.class.name", "there is no authorizer, and everyone may do everything"},
		{"create.topic.policy.class.name", "there are no plugins, and no policy would guard new topics"},
		{"alter.config.policy.class.name", "there are no plugins, and no policy would guard changes of settings"},
	} {
		if class := v.str(plugin.name); class != "" {
			return contradiction("%s=%s: %s; leave it out", plugin.name, class, plugin.instead)
		}
	}
	if !slices.Contains(b.GroupRebalanceProtocols, "classic") {
		return contradiction("Disabling the 'classic' protocol is not supported.")
	}
	return nil
}
