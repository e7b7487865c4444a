package broker

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeLogDirs (35): versions 1–4 (Kafka 4.4 has 5, which adds cordoned directories; kmsg does not know it).
//
//	v2 flexible    v3 top-level error    v4 total and usable bytes (KIP-827)
//
// One directory; a partition's size is what it holds on local disk.
var apiDescribeLogDirs = api{key: 35, name: "DescribeLogDirs", min: 1, max: 4, handle: typed((*Server).describeLogDirs)}

func (s *Server) describeLogDirs(r *request, q *kmsg.DescribeLogDirsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir = s.cfg.LogDir
	dir.TotalBytes, dir.UsableBytes = -1, -1
	if s.deps.DiskSpace != nil {
		if total, free, err := s.deps.DiskSpace(); err != nil {
			s.log.Warn("disk space unknown", "dir", s.cfg.LogDir, "err", err)
		} else {
			dir.TotalBytes, dir.UsableBytes = int64(total), int64(free)
		}
	}
	wanted := map[partKey]bool{}
	for i := range q.Topics {
		for _, index := range q.Topics[i].Partitions {
			wanted[partKey{name: q.Topics[i].Topic, index: index}] = true
		}
	}
	held := s.deps.Partitions.Held()
	slices.SortFunc(held, func(a, b Partition) int {
		x, y := a.ID(), b.ID()
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Index, y.Index))
	})
	for _, p := range held {
		id := p.ID()
		if q.Topics != nil && !wanted[partKey{name: id.Topic, index: id.Index}] {
			continue
		}
		size, err := p.SizeBytes()
		if err != nil { // deleted, or its disk has failed
			s.log.Warn("partition size unknown", "topic", id.Topic, "partition", id.Index, "err", err)
			continue
		}
		if n := len(dir.Topics); n == 0 || dir.Topics[n-1].Topic != id.Topic {
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = id.Topic
			dir.Topics = append(dir.Topics, t)
		}
		out := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		out.Partition, out.Size = id.Index, size
		t := &dir.Topics[len(dir.Topics)-1]
		t.Partitions = append(t.Partitions, out)
	}
	resp.Dirs = append(resp.Dirs, dir)
	return resp, nil
}
