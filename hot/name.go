package hot

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/varvelog/varve/meta/topic"
)

// Names in the data directory.
//
//	lock                     held while a store is open
//	clean-shutdown           present only after a clean close
//	journal                  offsets of every partition
//	shared-log               what was appended to several logs lately
//	broker-epoch             the broker epoch the directory is used under
//	boot                     the run of the kernel it is used in
//	scrub                    how far the check of sealed segments has come
//	<topic>-<n>.<id>/        one partition; <id> is the topic id's text
//	<start>~-<n>.<id>/       the same for a topic name above 200 bytes, whose
//	                         whole name is in the file partition.metadata
//	<either>-delete/         being removed
//	<either>-damaged/        set aside because synced bytes were gone, also
//	                         .2-damaged, .3-damaged, …; for a human to look at
//
// Names in a partition directory, %020d being an offset:
//
//	%020d.log       batches from that offset on
//	%020d.index     its index
//	%020d.txnindex  its aborted transactions, absent when there are none
//	%020d.snapshot  producer state just before that offset
//	leader-epochs   the leader-epoch chain
//	*.cleaned, *.swap  compaction under way
//	*.deleted       waiting for file.delete.delay.ms
//	*.tmp           an unfinished write
const (
	lockName    = "lock"
	markerName  = "clean-shutdown"
	journalName = "journal"
	// format: do not rename
	sharedName      = "shared-log"
	brokerEpochName = "broker-epoch"
	bootName        = "boot"
	scrubName       = "scrub"
	metadataName    = "partition.metadata"
	epochsName      = "leader-epochs"
	deleteSuffix    = "-delete"
	damagedSuffix   = "-damaged"
	logExt          = ".log"
	indexExt        = ".index"
	txnExt          = ".txnindex"
	snapshotExt     = ".snapshot"
	tmpExt          = ".tmp"
	deletedExt      = ".deleted"
	cleanedExt      = ".cleaned"
	swapExt         = ".swap"
	dirTopicMax     = 200
	idTextSize      = 22
	offsetDigits    = 20
	cutNameMarker   = "~"
)

// partitionDirName is the directory of p.
func partitionDirName(p topic.Partition) string {
	name := p.Topic
	if len(name) > dirTopicMax {
		name = name[:dirTopicMax] + cutNameMarker
	}
	return name + "-" + strconv.Itoa(int(p.Index)) + "." + p.ID.String()
}

// parsePartitionDirName reads a directory name; cut says that the topic's
// name must be read from partition.metadata.
func parsePartitionDirName(name string) (p topic.Partition, cut, ok bool) {
	dot := len(name) - idTextSize - 1
	if dot < 3 || name[dot] != '.' {
		return p, false, false
	}
	id, err := topic.ParseID(name[dot+1:])
	if err != nil || id.String() != name[dot+1:] {
		return p, false, false // the decoder skips line breaks
	}
	dash := strings.LastIndexByte(name[:dot], '-')
	if dash < 1 {
		return p, false, false
	}
	index, err := strconv.ParseInt(name[dash+1:dot], 10, 32)
	if err != nil || index < 0 || strconv.FormatInt(index, 10) != name[dash+1:dot] {
		return p, false, false
	}
	p = topic.Partition{Topic: name[:dash], ID: id, Index: int32(index)}
	if strings.HasSuffix(p.Topic, cutNameMarker) {
		return p, true, true
	}
	return p, false, topic.ValidateName(p.Topic) == nil
}

// offsetName is the file of an offset, such as 00000000000000000042.log.
func offsetName(offset int64, ext string) string {
	var digits [offsetDigits]byte
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = byte('0' + offset%10)
		offset /= 10
	}
	return string(digits[:]) + ext
}

// parseOffsetName reads what offsetName wrote.
func parseOffsetName(name string) (offset int64, ext string, ok bool) {
	if len(name) <= offsetDigits || name[offsetDigits] != '.' {
		return 0, "", false
	}
	// Digits only: ParseUint takes no sign.
	n, err := strconv.ParseUint(name[:offsetDigits], 10, 63)
	if err != nil {
		return 0, "", false
	}
	offset = int64(n)
	return offset, name[offsetDigits:], true
}

// Contents of partition.metadata, one setting a line:
//
//	version: 0
//	topic: <whole name>
//	topic_id: <id>
func formatMetadata(p topic.Partition) []byte {
	return fmt.Appendf(nil, "version: 0\ntopic: %s\ntopic_id: %s\n", p.Topic, p.ID)
}

func parseMetadata(b []byte) (name string, ok bool) {
	for line := range strings.Lines(string(b)) {
		if rest, found := strings.CutPrefix(line, "topic: "); found {
			name = strings.TrimSpace(rest)
		}
	}
	return name, topic.ValidateName(name) == nil
}

func (l *Log) path(base int64, ext string) string {
	return filepath.Join(l.dir, offsetName(base, ext))
}
