package objstore_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childEnv makes the test binary another process of the file store's tests: see TestFolderLocksBetweenProcesses.
const childEnv = "VARVE_OBJSTORE_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(runFolderChild(dir, os.Args[len(os.Args)-1]))
	}
	goleak.VerifyTestMain(m)
}
