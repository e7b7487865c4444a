package objstoretest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"time"
)

const (
	// toolDir is the module that pins versitygw, seen from the root of this one.
	toolDir     = "integration/tools/versitygw"
	toolPackage = "github.com/versity/versitygw/cmd/versitygw"
	moduleLine  = "module github.com/varvelog/varve\n"
	// buildTimeout allows for a cold build on a slow machine.
	buildTimeout = 15 * time.Minute
)

var toolVersion = regexp.MustCompile(`(?m)^\s*(?:require )?github\.com/versity/versitygw (v\S+)`)

// Binary is where the built versitygw of the pinned version lies, or will lie: in the user's cache folder.
func Binary() (string, error) {
	dir, err := toolModule()
	if err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", err
	}
	version := toolVersion.FindSubmatch(mod)
	if version == nil {
		return "", fmt.Errorf("%s/go.mod names no version of versitygw", toolDir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder for versitygw: %w", err)
	}
	sum := sha256.Sum256(mod) // other versions of its libraries make another program
	name := fmt.Sprintf("versitygw-%s-%x-%s-%s", version[1], sum[:4], runtime.GOOS, runtime.GOARCH)
	return filepath.Join(cache, "varve", "tools", name), nil
}

// BuildVersityGW builds versitygw unless that was done before, and gives the binary's path. Of several processes one
// builds and the others wait.
func BuildVersityGW(ctx context.Context) (string, error) {
	binary, err := Binary()
	if err != nil || exists(binary) {
		return binary, err
	}
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	unlock, err := lockFile(ctx, binary+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(binary) {
		return binary, nil
	}
	dir, err := toolModule()
	if err != nil {
		return "", err
	}
	temp := fmt.Sprintf("%s.%d.tmp", binary, os.Getpid())
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", temp, toolPackage)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("build versitygw in %s: %w\n%s", toolDir, err, out), os.RemoveAll(temp))
	}
	return binary, os.Rename(temp, binary)
}

// toolModule finds the tool's module from the working folder, which for a test is its package's folder.
func toolModule() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		mod, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && len(mod) >= len(moduleLine) && string(mod[:len(moduleLine)]) == moduleLine {
			return filepath.Join(at, toolDir), nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not inside a checkout of github.com/varvelog/varve", dir)
		}
	}
}
