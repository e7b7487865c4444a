package kafkatest

import (
	_ "embed"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed java/FolderStore.java
var folderStore string

// StartTiered is StartBroker with remote storage in a folder, and with the
// chores of tiering done often enough for a test to wait for them. It needs
// javac.
func StartTiered(t testing.TB, clientsDir string, settings ...string) *Broker {
	t.Helper()
	classes, folder := t.TempDir(), t.TempDir()
	source := filepath.Join(classes, "FolderStore.java")
	write(t, source, folderStore)
	if out, err := exec.Command("javac", "-cp", filepath.Join(clientsDir, "jars", "*"), "-d", classes, source).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return StartBroker(t, clientsDir, append(settings,
		"remote.log.storage.system.enable=true",
		"remote.log.storage.manager.class.name=FolderStore",
		"remote.log.storage.manager.class.path="+classes+"/",
		"remote.log.storage.manager.impl.prefix=store.",
		"store.folder="+folder,
		"remote.log.metadata.manager.listener.name=PLAINTEXT",
		"rlmm.config.remote.log.metadata.topic.replication.factor=1",
		"rlmm.config.remote.log.metadata.topic.num.partitions=1",
		"rlmm.config.remote.log.metadata.topic.min.isr=1",
		"remote.log.manager.task.interval.ms=300",
		"log.retention.check.interval.ms=300",
		"log.initial.task.delay.ms=300",
	)...)
}
