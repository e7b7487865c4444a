package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

func openFolder(t *testing.T, dir string) *objstore.Folder {
	t.Helper()
	st, err := objstore.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

func put(t *testing.T, s objstore.Store, key, content string) objstore.Object {
	t.Helper()
	obj, err := s.Put(t.Context(), key, objstore.Bytes([]byte(content)), objstore.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func wantContent(t *testing.T, s objstore.Store, key, want string) {
	t.Helper()
	got, _, err := objstore.ReadAll(t.Context(), s, key, 1<<20)
	if err != nil || string(got) != want {
		t.Fatalf("%s holds %q, %v; want %q", key, got, err, want)
	}
}

func wantKind(t *testing.T, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got error %v, want %v", err, kind)
	}
}

func TestFolderAcceptance(t *testing.T) {
	objstoretest.AcceptanceTest(t, func(t *testing.T) objstore.Store { return openFolder(t, t.TempDir()) })
}

func TestFolderShowsWhatAnotherStoreOnItWrote(t *testing.T) {
	dir := t.TempDir()
	one, two := openFolder(t, dir), openFolder(t, dir)
	obj := put(t, one, "a/b", "x")
	head, err := two.Head(t.Context(), "a/b")
	if err != nil || head.ETag != obj.ETag {
		t.Fatalf("the other store shows %+v, %v; put returned %+v", head, err, obj)
	}
	wantContent(t, openFolder(t, dir), "a/b", "x")
}

const childWrites = 25

// runFolderChild counts up one object by compare-and-swap, as one of several processes.
func runFolderChild(dir, name string) int {
	st, err := objstore.OpenFolder(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := 0; i < childWrites; {
		b, obj, err := objstore.ReadAll(ctx, st, "counter", 1<<20)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		b = fmt.Appendf(b, "%s-%d\n", name, i)
		_, err = st.Put(ctx, "counter", objstore.Bytes(b), objstore.PutOptions{IfMatch: obj.ETag})
		switch {
		case err == nil:
			i++
		case !errors.Is(err, objstore.ErrPrecondition):
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

func TestFolderLocksBetweenProcesses(t *testing.T) {
	dir := t.TempDir()
	st := openFolder(t, dir)
	put(t, st, "counter", "")
	const children = 3
	var wg sync.WaitGroup
	for i := range children {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], fmt.Sprint("child", i))
			cmd.Env = append(os.Environ(), childEnv+"="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("child %d: %v\n%s", i, err, out)
			}
		})
	}
	wg.Wait()
	got, _, err := objstore.ReadAll(t.Context(), st, "counter", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	slices.Sort(lines)
	if distinct := len(slices.Compact(lines)); distinct != children*childWrites {
		t.Fatalf("%d updates survived of %d", distinct, children*childWrites)
	}
}

func TestFolderETagsNeverRepeat(t *testing.T) {
	st := openFolder(t, t.TempDir())
	seen := make(map[string]bool)
	for range 300 { // much faster than the clock of most file systems
		seen[put(t, st, "same", "size").ETag] = true
	}
	if len(seen) != 300 {
		t.Fatalf("%d ETags for 300 puts", len(seen))
	}
}

func TestFolderETagsRiseWhenTheClockStandsBack(t *testing.T) {
	dir := t.TempDir()
	st := openFolder(t, dir)
	first := put(t, st, "k", "one")
	future := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "k"), time.Time{}, future); err != nil {
		t.Fatal(err)
	}
	next := put(t, st, "k", "two")
	if !next.Modified.After(future) || next.ETag == first.ETag {
		t.Fatalf("put after %v is dated %v", future, next.Modified)
	}
}

func TestFolderMissingRootIsNotAnEmptyArchive(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	st := openFolder(t, dir)
	put(t, st, "a/b", "x")
	if err := os.Rename(dir, dir+".away"); err != nil { // as when a disk is not mounted
		t.Fatal(err)
	}
	for _, makeAgain := range []bool{false, true} {
		if makeAgain { // the empty folder below a mount point
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		_, err := st.Head(t.Context(), "absent")
		wantKind(t, err, objstore.ErrNoBucket)
		_, _, err = st.Get(t.Context(), "absent", 0, -1)
		wantKind(t, err, objstore.ErrNoBucket)
		_, err = st.Put(t.Context(), "a/c", objstore.Bytes(nil), objstore.PutOptions{IfNoneMatch: true})
		wantKind(t, err, objstore.ErrNoBucket)
		wantKind(t, st.List(t.Context(), "", "", func(objstore.Object) bool { return true }), objstore.ErrNoBucket)
		wantKind(t, st.Delete(t.Context(), "absent"), objstore.ErrNoBucket)
	}
}

func TestFolderDoesNotFollowLinksOutside(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	st := openFolder(t, dir)
	for link, target := range map[string]string{"dir": outside, "file": filepath.Join(outside, "secret")} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"dir/secret", "file"} {
		if body, _, err := st.Get(t.Context(), key, 0, -1); err == nil {
			_ = body.Close()
			t.Fatalf("%s was read through a link", key)
		}
	}
	if _, err := st.Put(t.Context(), "dir/new", objstore.Bytes(nil), objstore.PutOptions{}); err == nil {
		t.Fatal("a put went through a link")
	}
	if err := st.List(t.Context(), "", "", func(o objstore.Object) bool { t.Errorf("listed %+v", o); return true }); err != nil {
		t.Fatal(err)
	}
}

func TestFolderLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	st := openFolder(t, dir)
	put(t, st, "a/b/c", "x")
	if _, err := st.Put(t.Context(), "a/b/c", objstore.Bytes([]byte("y")), objstore.PutOptions{IfNoneMatch: true}); err == nil {
		t.Fatal("a refused put was accepted")
	}
	if _, err := st.Put(t.Context(), "a/b", objstore.Bytes([]byte("y")), objstore.PutOptions{}); err == nil {
		t.Fatal("an object took the place of a folder")
	}
	if _, err := st.Put(t.Context(), "a/b/c/d", objstore.Bytes([]byte("y")), objstore.PutOptions{}); err == nil {
		t.Fatal("a folder took the place of an object")
	}
	if err := st.Delete(t.Context(), "a/b/c"); err != nil {
		t.Fatal(err)
	}
	var left []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(dir, path); err == nil && rel != "." && !strings.HasPrefix(rel, ".varve/lock") {
			left = append(left, rel)
		}
		return err
	})
	if want := []string{".varve", ".varve/tmp"}; err != nil || !slices.Equal(left, want) {
		t.Fatalf("left behind: %q, %v; want %q", left, err, want)
	}
}

func TestFolderRemovesOnlyStaleUnfinishedPuts(t *testing.T) {
	dir := t.TempDir()
	openFolder(t, dir)
	age := map[string]time.Duration{"fresh": time.Minute, "stale": 72 * time.Hour}
	for name, by := range age {
		path := filepath.Join(dir, ".varve", "tmp", name)
		if err := os.WriteFile(path, []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-by)); err != nil {
			t.Fatal(err)
		}
	}
	openFolder(t, dir)
	left, err := os.ReadDir(filepath.Join(dir, ".varve", "tmp"))
	if err != nil || len(left) != 1 || left[0].Name() != "fresh" {
		t.Fatalf("left are %v, %v; want only the fresh one", left, err)
	}
}

// Nodes of one cluster open their bucket's folder at the same moment.
func TestFolderIsOpenedByManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	var g sync.WaitGroup
	for range 32 {
		g.Go(func() {
			f, err := objstore.OpenFolder(dir)
			if err != nil {
				t.Error(err)
				return
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
}

func TestFolderReaderKeepsItsObject(t *testing.T) {
	st := openFolder(t, t.TempDir())
	content := strings.Repeat("old", 100_000)
	put(t, st, "k", content)
	body, _, err := st.Get(t.Context(), "k", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	put(t, st, "k", "new")
	if err := st.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if _, err := got.ReadFrom(body); err != nil || got.String() != content {
		t.Fatalf("read %d bytes, %v, of the %d that were there when the reader began", got.Len(), err, len(content))
	}
}

func TestFolderCutFileFailsTheRead(t *testing.T) {
	dir := t.TempDir()
	st := openFolder(t, dir)
	put(t, st, "k", strings.Repeat("x", 1<<20))
	body, _, err := st.Get(t.Context(), "k", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if err := os.Truncate(filepath.Join(dir, "k"), 1000); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	_, err = got.ReadFrom(body)
	wantKind(t, err, objstore.ErrUnavailable)
}

func TestFolderWaitsForTheLockNoLongerThanItsContext(t *testing.T) {
	dir := t.TempDir()
	st := openFolder(t, dir)
	put(t, st, "k", "x")
	release := holdAllLocks(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := st.Put(ctx, "k", objstore.Bytes([]byte("y")), objstore.PutOptions{})
	wantKind(t, err, objstore.ErrUnavailable)
	wantKind(t, err, context.DeadlineExceeded)
	release()
	put(t, st, "k", "z")
	wantContent(t, st, "k", "z")
}
