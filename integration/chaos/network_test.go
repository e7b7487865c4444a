//go:build linux

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestNetworkIsCutOneWayAndHealed(t *testing.T) {
	if err := can(row{network: true}); err != nil {
		t.Skip(err)
	}
	n, err := makeNetwork(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.remove(); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob("/var/run/netns/" + n.prefix + "*"); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	reach := func(from, to int) bool {
		ns := n.namespace(map[int]string{clients: "0", bucket: "0", 1: "1", 2: "2"}[from])
		return probe(t, ns, n.host(to))
	}
	if !reach(1, 2) || !reach(clients, 1) || !reach(2, bucket) {
		t.Fatal("the ends do not reach each other")
	}
	if err := n.block(1, 2); err != nil {
		t.Fatal(err)
	}
	if reach(1, 2) || reach(2, 1) {
		t.Error("an exchange needs both directions, and one is blocked")
	}
	if !reach(clients, 1) || !reach(1, bucket) {
		t.Error("other pairs are cut as well")
	}
	if err := n.block(1, 2); err != nil {
		t.Errorf("blocking again: %v", err)
	}
	if err := n.heal(); err != nil {
		t.Fatal(err)
	}
	if !reach(1, 2) {
		t.Error("healing does not help")
	}
}

// probe says whether a TCP connection attempt from a namespace is answered, by
// acceptance or refusal.
func probe(t *testing.T, namespace, host string) bool {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=TestProbeChild")
	cmd.Env = append(os.Environ(), "CHAOS_PROBE="+net.JoinHostPort(host, "9"))
	out := &strings.Builder{}
	cmd.Stdout = out
	if err := newSpawner().start(cmd, namespace); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return strings.Contains(out.String(), "answered")
}

// TestProbeChild is what probe runs inside a namespace.
func TestProbeChild(t *testing.T) {
	address := os.Getenv("CHAOS_PROBE")
	if address == "" {
		address = "127.0.0.1:9" // by itself it only shows that refusal is an answer
	}
	c, err := net.DialTimeout("tcp", address, 700*time.Millisecond)
	if err == nil {
		c.Close()
	}
	answered := err == nil || strings.Contains(err.Error(), "refused")
	if answered {
		os.Stdout.WriteString("answered\n")
	} else if os.Getenv("CHAOS_PROBE") == "" {
		t.Errorf("a closed port of this machine gives %v", err)
	}
}

func TestPowerLossKeepsWhatWasSyncedAndNothingElse(t *testing.T) {
	if err := can(row{disks: true}); err != nil {
		t.Skip(err)
	}
	d, err := makeDisk(filepath.Join(t.TempDir(), "disk"), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.unmount(); err != nil {
			t.Error(err)
		}
	})
	f, err := os.Create(filepath.Join(d.at, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir, err := os.Open(d.at)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("synced")
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := dir.Sync(); err != nil {
		t.Fatal(err)
	}
	dir.Close()
	write(" and not")
	if err := d.cutPower(); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err == nil {
		t.Error("a sync without power succeeds")
	}
	f.Close()
	if err := d.unmount(); err != nil {
		t.Fatal(err)
	}
	if err := d.mount(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(d.at, "file")); err != nil || string(got) != "synced" {
		t.Errorf("the disk holds %q, %v", got, err)
	}
	if err := d.fill(8 << 20); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.at, "large"), make([]byte, 16<<20), 0o644); err == nil {
		t.Error("16 MiB fit where 8 are free")
	}
	if err := d.drain(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.at, "large"), make([]byte, 16<<20), 0o644); err != nil {
		t.Errorf("the space has not come back: %v", err)
	}
}
