package hot

import (
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/varvelog/varve/hot/vfs"
)

// NoBrokerEpoch says that the data directory does not tell under which epoch its broker was registered last.
const NoBrokerEpoch int64 = -1

// BrokerEpoch is the broker epoch that the data directory was last used under when the store was opened, or NoBrokerEpoch:
// the directory is new, or what it says is damaged. A directory that was wiped, or put back from an old copy, says another
// epoch than the controller knows (KIP-966).
func (s *Store) BrokerEpoch() int64 { return s.brokerEpoch }

// SetBrokerEpoch notes, durably, under which broker epoch the directory is used from now on. It is called after the broker
// has registered and before it leads or follows anything.
func (s *Store) SetBrokerEpoch(epoch int64) error {
	if err := s.replaceFile(brokerEpochName, []byte(formatBrokerEpoch(epoch))); err != nil {
		return fmt.Errorf("note the broker epoch: %w", err)
	}
	return nil
}

const brokerEpochPrefix = "varve broker epoch "

// formatBrokerEpoch is the file's one line: epoch and its checksum.
func formatBrokerEpoch(epoch int64) string {
	line := brokerEpochPrefix + strconv.FormatInt(epoch, 10)
	return fmt.Sprintf("%s %08x\n", line, crc32.Checksum([]byte(line), castagnoli))
}

func readBrokerEpoch(fs vfs.FS, dir string) (int64, error) {
	b, err := vfs.ReadFile(fs, filepath.Join(dir, brokerEpochName), 4096)
	if errors.Is(err, vfs.ErrNotExist) {
		return NoBrokerEpoch, nil
	}
	if err != nil {
		return NoBrokerEpoch, fmt.Errorf("read the broker epoch: %w", err)
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(string(b), brokerEpochPrefix), " ")
	epoch, err := strconv.ParseInt(text, 10, 64)
	if err != nil || formatBrokerEpoch(epoch) != string(b) {
		return NoBrokerEpoch, nil // damaged: whoever asks must assume the worst
	}
	return epoch, nil
}
