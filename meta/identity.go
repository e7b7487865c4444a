package meta

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/varvelog/varve/meta/topic"
)

// identity is the file meta.properties: which node of which cluster the
// directory belongs to. It outlives the log in it, so that a directory which
// has lost its log is not taken for a new one.
type identity struct {
	nodeID int32
	// directory is random: another directory of the same node is another one.
	directory topic.ID
	// founders are the directories with which the first quorum was formed; nil
	// if the node did not take part in that. formed is set once raft has begun
	// with them.
	founders map[int32]topic.ID
	formed   bool
	// clusterID is "" until the node has learned it.
	clusterID string
}

const identityFile = "meta.properties"

// identityBytesMax is several times what the file of the largest quorum takes.
const identityBytesMax = 16 << 10

// bound reports whether there has to be a log beside the file.
func (i identity) bound() bool { return i.clusterID != "" || i.formed }

// readIdentity reads the file; without one it returns the identity of a new
// directory and false.
func readIdentity(dir string, node int32) (identity, bool, error) {
	b, err := os.ReadFile(filepath.Join(dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return identity{nodeID: node, directory: topic.NewID()}, false, nil
	}
	if err != nil {
		return identity{}, false, fmt.Errorf("read identity: %w", err)
	}
	i, err := parseIdentity(b)
	return i, err == nil, err
}

func parseIdentity(b []byte) (identity, error) {
	if len(b) > identityBytesMax {
		return identity{}, fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrCorrupt, identityFile, len(b), identityBytesMax)
	}
	values := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch k {
		case "version", "node.id", "cluster.id", "directory.id", "founders", "formed":
			values[k] = v
		}
	}
	if v := values["version"]; v != "1" {
		return identity{}, fmt.Errorf("%w: %s has version %.20q, this release reads 1", ErrVersion, identityFile, v)
	}
	id, err := strconv.ParseInt(values["node.id"], 10, 32)
	if err != nil {
		return identity{}, fmt.Errorf("%w: %s names no node", ErrCorrupt, identityFile)
	}
	i := identity{clusterID: values["cluster.id"], nodeID: int32(id), formed: values["formed"] == "true"}
	if text := values["directory.id"]; text != "" {
		if i.directory, err = topic.ParseID(text); err != nil {
			return identity{}, fmt.Errorf("%w: %s: directory.id: %w", ErrCorrupt, identityFile, err)
		}
		if i.directory.IsZero() {
			return identity{}, fmt.Errorf("%w: %s: directory.id is all zero", ErrCorrupt, identityFile)
		}
	} else if i.clusterID == "" {
		return identity{}, fmt.Errorf("%w: %s names neither a directory nor a cluster", ErrCorrupt, identityFile)
	}
	if text := values["founders"]; text != "" {
		if i.founders, err = parseFounders(text); err != nil {
			return identity{}, fmt.Errorf("%w: %s: founders: %w", ErrCorrupt, identityFile, err)
		}
	}
	return i, nil
}

func parseFounders(text string) (map[int32]topic.ID, error) {
	founders := make(map[int32]topic.ID)
	for one := range strings.SplitSeq(text, ",") {
		node, directory, _ := strings.Cut(one, "@")
		id, err := strconv.ParseInt(node, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%.20q is not a node", node)
		}
		if founders[int32(id)], err = topic.ParseID(directory); err != nil {
			return nil, err
		}
	}
	return founders, nil
}

func (i identity) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "version=1\nnode.id=%d\ndirectory.id=%s\n", i.nodeID, i.directory)
	if i.clusterID != "" {
		fmt.Fprintf(&b, "cluster.id=%s\n", i.clusterID)
	}
	if len(i.founders) > 0 {
		list := make([]string, 0, len(i.founders))
		for _, id := range sortedIDs(i.founders) {
			list = append(list, fmt.Sprintf("%d@%s", id, i.founders[id]))
		}
		fmt.Fprintf(&b, "founders=%s\n", strings.Join(list, ","))
	}
	if i.formed {
		b.WriteString("formed=true\n")
	}
	return b.String()
}

// write puts the file in place whole or not at all.
func (i identity) write(dir string) error {
	path := filepath.Join(dir, identityFile)
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	_, err = f.WriteString(i.text())
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
