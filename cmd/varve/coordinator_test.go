package main

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestACoordinatorThatStartsIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		starts := &kadm.ShardErrors{Name: "DeleteGroups", Errs: []kadm.ShardError{{Err: kerr.CoordinatorNotAvailable}}}
		asked := 0
		err := patiently(t.Context(), 30*time.Second, func() error {
			if asked++; asked < 20 {
				return starts
			}
			return kerr.GroupIDNotFound
		})
		if !errors.Is(err, kerr.GroupIDNotFound) || asked != 20 {
			t.Errorf("after %d questions: %v", asked, err)
		}
		began := time.Now()
		err = groupError("g", patiently(t.Context(), 30*time.Second, func() error { return starts }), "")
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("gave up after %v", took)
		}
		if !errors.Is(err, kerr.CoordinatorNotAvailable) || strings.Contains(err.Error(), "shard") || !strings.Contains(err.Error(), "its coordinator starts") {
			t.Errorf("it says %v", err)
		}
	})
}
