package broker

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varvelog/varve/replica"
)

// internalErrors are sentinels that never reach a client: they end inside the room named, or the process ends with them.
// Each has its reason.
var internalErrors = map[string]string{
	"hot.ErrDiskFull":              "replica.ErrDiskFull is the same value",
	"hot.ErrRecordsTooLarge":       "replica.ErrRecordsTooLarge is the same value",
	"hot.ErrOutOfOrderSequence":    "replica.ErrOutOfOrderSequence is the same value",
	"hot.ErrStaleProducerEpoch":    "replica.ErrStaleProducerEpoch is the same value",
	"hot.ErrInvalidTxnState":       "replica.ErrInvalidTxnState is the same value",
	"hot.ErrTxnEndedMeanwhile":     "replica.ErrTxnEndedMeanwhile is the same value",
	"hot.ErrStaleCoordinator":      "replica.ErrStaleCoordinator is the same value",
	"hot.ErrNotContiguous":         "a follower's append: the fetcher starts over",
	"hot.ErrUnjudged":              "replica makes it ErrNotLeader",
	"hot.ErrBelowLocal":            "replica completes it from the bucket",
	"hot.ErrSegmentGone":           "readers and the tier manager list segments anew",
	"hot.ErrNotClean":              "start-up scans instead",
	"hot.ErrClosed":                "replica answers ErrNotLeader or ErrClosed instead",
	"hot.ErrOffsetOutOfRange":      "replica answers its own ErrOffsetOutOfRange",
	"hot.ErrOffline":               "replica answers its own ErrOffline",
	"hot.ErrCorrupt":               "replica.ErrCorrupt is the same value",
	"vfs.ErrReplaced":              "a log goes offline by it",
	"vfs.ErrLocked":                "start-up",
	"vfs.ErrTooLarge":              "file helpers of start-up",
	"vfs.ErrNotExist":              "files, not requests",
	"conf.ErrUnknown":              "meta answers ErrInvalidConfig with its message",
	"conf.ErrInvalid":              "meta answers ErrInvalidConfig with its message",
	"meta.ErrCorrupt":              "start-up refuses",
	"meta.ErrVersion":              "start-up refuses",
	"meta.ErrNoWayIn":              "the process ends",
	"meta.ErrState":                "a command that contradicts the image: logged by the state machine",
	"tier.ErrFenced":               "the tier manager resigns",
	"tier.ErrConflict":             "the tier manager reads the manifest again",
	"tier.ErrTooManyMarked":        "the tier manager purges first",
	"tier.ErrBelowStart":           "replica decides: out of range or look again",
	"tier.ErrNotTiered":            "replica looks again",
	"tier.ErrUnavailable":          "replica answers ErrRemoteUnavailable",
	"tier.ErrMissing":              "replica answers ErrRemoteUnavailable",
	"tier.ErrCorrupt":              "replica answers ErrRemoteUnavailable",
	"tier.ErrUnsupported":          "start-up refuses",
	"tier.ErrClosed":               "replica answers ErrRemoteUnavailable",
	"objstore.ErrNotFound":         "tier turns store errors into its own",
	"objstore.ErrPrecondition":     "tier turns store errors into its own",
	"objstore.ErrUnavailable":      "tier turns store errors into its own",
	"objstore.ErrUnknownOutcome":   "tier reads the state again",
	"objstore.ErrDenied":           "tier turns store errors into its own",
	"objstore.ErrNoBucket":         "start-up refuses",
	"objstore.ErrCapability":       "start-up refuses",
	"objstore.ErrRejected":         "tier turns store errors into its own",
	"objstore.ErrRange":            "tier turns store errors into its own",
	"objstore.ErrTooLarge":         "tier turns store errors into its own",
	"objstore.ErrInvalidKey":       "tier turns store errors into its own",
	"objstore.ErrInvalidURL":       "start-up refuses",
	"coordinator.ErrCorrupt":       "the record is left out and logged",
	"coordinator.ErrInvalidConfig": "start-up refuses",
	"peer.ErrClosed":               "Controller answers meta.ErrNotController or ErrUnknownOutcome; a fetcher starts over",
	"peer.ErrDisconnected":         "as peer.ErrClosed",
	"peer.ErrNotSent":              "as peer.ErrClosed",
	"peer.ErrUnsupported":          "the peer is of a release too far from this one: start-up fails, a fetcher waits",
	"peer.ErrMalformed":            "as peer.ErrUnsupported",
	"secure.ErrBadKeys":            "start-up refuses; what changes later is logged",
	"secure.ErrSlow":               "the connection is closed, and logged",
	"secure.ErrPlaintext":          "the connection is closed, and logged",
	"broker.ErrServerClosed":       "returned by Serve",
}

// sentinels lists the exported Err… variables of every errors.go of the module, as package.Name.
func sentinels(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir("..", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 {
			return filepath.SkipDir
		}
		if d.Name() != "errors.go" || strings.Contains(path, "integration") || strings.Contains(path, "cmd") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok {
				for _, id := range v.Names {
					if strings.HasPrefix(id.Name, "Err") {
						names = append(names, file.Name.Name+"."+id.Name)
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// mapped lists the sentinels that errcode.go names, as package.Name.
func mapped(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errcode.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Err") {
			names[fmt.Sprintf("%s.%s", s.X, s.Sel.Name)] = true
		}
		return true
	})
	return names
}

func TestEverySentinelHasACode(t *testing.T) {
	all, known := sentinels(t), mapped(t)
	if len(all) < 40 {
		t.Fatalf("found only %d sentinels", len(all))
	}
	exists := map[string]bool{}
	for _, n := range all {
		exists[n] = true
		_, internal := internalErrors[n]
		switch {
		case known[n] && internal:
			t.Errorf("%s is mapped and listed as internal", n)
		case !known[n] && !internal:
			t.Errorf("%s is neither mapped in errcode.go nor listed as internal here", n)
		}
	}
	for n := range internalErrors {
		if !exists[n] {
			t.Errorf("%s is listed as internal but does not exist", n)
		}
	}
}

func TestWrappedErrorsKeepTheirCode(t *testing.T) {
	for _, x := range []struct {
		err  error
		code int16
	}{
		{nil, 0},
		{replica.ErrNotLeader, 6},
		{fmt.Errorf("read: %w", replica.ErrOffsetOutOfRange), 1},
		{withMessage(replica.ErrOffline, "disk %s", "gone"), 56},
		{errors.New("anything else"), -1},
	} {
		if got := code(x.err); got != x.code {
			t.Errorf("%v: code %d, want %d", x.err, got, x.code)
		}
	}
}
