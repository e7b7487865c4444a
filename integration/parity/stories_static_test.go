package parity

import "github.com/twmb/franz-go/pkg/kmsg"

func staticStories() []story {
	return []story{
		{"static members of a consumer group", staticConsumers},
		{"static members of a consumer group, who may leave", staticConsumersLeave},
	}
}

// statics is a consumer group whose members have instance ids.
type statics struct {
	s     *session
	group string
	topic string
	epoch map[string]int32 // as members were told it last
}

// newStatics makes a group with a topic of four partitions.
func newStatics(s *session, group string) *statics {
	topic := group + "-topic"
	createTopic(s, topic, 4, nil)
	coordinator(s, group)
	assignAtOnce(s, group, topic)
	return &statics{s: s, group: group, topic: topic, epoch: map[string]int32{}}
}

// Members.
const (
	memberA = "AAAAAAAAAAAAAAAAAAAAAA"
	memberB = "BBBBBBBBBBBBBBBBBBBBBB"
	memberC = "CCCCCCCCCCCCCCCCCCCCCC"
	memberD = "DDDDDDDDDDDDDDDDDDDDDD"
)

// beat is a heartbeat; instance "" gives none.
func (x *statics) beat(step, member, instance string, epoch int32) {
	topics := []string{x.topic}
	if epoch != 0 {
		topics = nil
	}
	req := consumerBeat(x.group, member, epoch, topics, nil)
	if instance != "" {
		req.InstanceID = &instance
	}
	if r, _ := x.s.ask(step, 1, req).(*kmsg.ConsumerGroupHeartbeatResponse); r != nil && r.ErrorCode == 0 {
		x.epoch[member] = r.MemberEpoch
	}
}

func (x *statics) commit(step, member string, epoch int32) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = x.group, member, epoch
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = x.topic
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset, p.LeaderEpoch = 3, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	x.s.ask(step, 9, req)
}

// staticConsumers: an instance id has one member at a time. Who has it keeps
// it until it says that it goes, or its session ends.
func staticConsumers(s *session) {
	x := newStatics(s, "cgs")
	x.beat("joins", memberA, "i", 0)
	x.beat("another joins while it is there", memberB, "i", 0)
	x.beat("and again", memberB, "i", 0)
	described(s, x.group)
	x.beat("another beats", memberB, "i", 5)
	x.beat("another beats without the instance", memberB, "", 5)
	x.beat("goes on", memberA, "i", x.epoch[memberA])
	x.beat("goes on without the instance", memberA, "", x.epoch[memberA])
	x.beat("goes on under an instance that nobody has", memberA, "j", x.epoch[memberA])
	x.beat("joins once more", memberA, "i", 0)
	x.commit("commits", memberA, x.epoch[memberA])
	x.beat("goes for a while", memberA, "i", -2)
	described(s, x.group)
	x.commit("commits while away", memberA, x.epoch[memberA])
	x.commit("commits while away, in the epoch of leaving", memberA, -2)
	x.beat("beats while away", memberA, "i", 2)
	x.beat("goes for a while again", memberA, "i", -2)
	x.beat("comes back as itself", memberA, "i", 0)
	x.beat("another joins while it is there", memberB, "i", 0)
	x.beat("goes for a while", memberA, "i", -2)
	x.beat("another takes its place", memberB, "i", 0)
	x.beat("the one before beats", memberA, "i", 2)
	x.beat("the one before beats without the instance", memberA, "", 2)
	x.beat("the one before joins", memberA, "i", 0)
	x.commit("the one before commits", memberA, 2)
	x.commit("its successor commits", memberB, x.epoch[memberB])
	described(s, x.group)
}

// staticConsumersLeave: leaving for good is the member's own.
func staticConsumersLeave(s *session) {
	x := newStatics(s, "cgl")
	x.beat("joins", memberA, "i", 0)
	x.beat("another leaves for it", memberB, "i", -1)
	x.beat("another leaves for it for a while", memberB, "i", -2)
	x.beat("an instance that nobody has leaves", memberA, "j", -1)
	x.beat("an instance that nobody has leaves for a while", memberA, "j", -2)
	x.beat("leaves for a while without the instance", memberA, "", -2)
	x.beat("a member without an instance joins", memberC, "", 0)
	x.beat("has nothing yet", memberC, "", x.epoch[memberC])
	x.beat("leaves for a while under an instance", memberC, "k", -2)
	x.beat("joins again under an instance", memberC, "k", 0)
	described(s, x.group)
	x.beat("another joins under that instance", memberD, "k", 0)
	x.beat("leaves without the instance", memberA, "", -1)
	x.beat("another joins under its instance", memberD, "i", 0)
	x.beat("leaves", memberC, "k", -1)
	x.beat("leaves again", memberC, "k", -1)
	x.beat("leaves", memberD, "i", -1)
	described(s, x.group)
	x.beat("comes back", memberD, "i", 0)
}
