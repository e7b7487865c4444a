package meta

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// identity is the file meta.properties: which node of which cluster the
// directory belongs to. It exists once the node has been part of a cluster,
// so that a directory which has lost its log is not taken for a new one.
type identity struct {
	clusterID string
	nodeID    int32
}

const identityFile = "meta.properties"

func readIdentity(dir string) (identity, bool, error) {
	b, err := os.ReadFile(filepath.Join(dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return identity{}, false, nil
	}
	if err != nil {
		return identity{}, false, fmt.Errorf("read identity: %w", err)
	}
	i, err := parseIdentity(b)
	return i, err == nil, err
}

func parseIdentity(b []byte) (identity, error) {
	values := make(map[string]string)
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		if k, v, ok := strings.Cut(strings.TrimSpace(lines.Text()), "="); ok && !strings.HasPrefix(k, "#") {
			values[k] = v
		}
	}
	if v := values["version"]; v != "1" {
		return identity{}, fmt.Errorf("%w: %s has version %q, this release reads 1", ErrVersion, identityFile, v)
	}
	id, err := strconv.ParseInt(values["node.id"], 10, 32)
	if err != nil || values["cluster.id"] == "" {
		return identity{}, fmt.Errorf("%w: %s names no node or no cluster", ErrCorrupt, identityFile)
	}
	return identity{clusterID: values["cluster.id"], nodeID: int32(id)}, nil
}

// write puts the file in place whole or not at all.
func (i identity) write(dir string) error {
	text := fmt.Sprintf("version=1\nnode.id=%d\ncluster.id=%s\n", i.nodeID, i.clusterID)
	path := filepath.Join(dir, identityFile)
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
