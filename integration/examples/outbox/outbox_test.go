package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/varvelog/varve/integration/examples/exampletest"
	"github.com/varvelog/varve/integration/nodetest"
)

// dieAt names a point of the relay at which it kills itself, the second time it
// comes by.
const dieAt = "VARVE_EXAMPLE_DIE_AT"

func TestMain(m *testing.M) {
	passed := 0
	relayed = func(point string) {
		if point != os.Getenv(dieAt) {
			return
		}
		if passed++; passed == 2 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	exampletest.Main(m, main)
}

// The relay dies where it hurts: with its messages written and not committed,
// and with its messages committed and still in the database. The broker dies,
// too.
func TestEveryOrderIsToldOfOnceInOrderWhoeverIsKilled(t *testing.T) {
	n := nodetest.Start(t, t.TempDir())
	const orders = 400
	t.Setenv(dieAt, "sent")
	w := exampletest.Start(t, n, "-db", filepath.Join(t.TempDir(), "service.db"), "-orders", fmt.Sprint(orders))
	w.Exited()
	t.Setenv(dieAt, "written")
	w.Restart()
	w.Exited()
	if got := len(exampletest.Committed(t, n, topic)); got == 0 || got >= orders {
		t.Errorf("%d of %d orders are told of before the broker is killed", got, orders)
	}
	n.Kill()
	n.Restart()
	t.Setenv(dieAt, "")
	w.Restart()
	exampletest.Eventually(t, "all orders are told of", func() error {
		got := exampletest.Committed(t, n, topic)
		for i, r := range got {
			if want := fmt.Sprintf("order %d is taken", i+1); string(r.Value) != want {
				t.Fatalf("message %d is %q, want %q", i, r.Value, want)
			}
		}
		if len(got) < orders {
			return fmt.Errorf("%d of %d are", len(got), orders)
		}
		return nil
	})
}
