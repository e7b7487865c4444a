package meta

import (
	"slices"
	"strings"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// partitionsPerRequestMax is how many partitions one request may create: the
// command that creates them has to fit into memory on every node.
const partitionsPerRequestMax = 10_000

// NewTopic asks for one topic (CreateTopics).
type NewTopic struct {
	Name string
	// Partitions and ReplicationFactor may be -1 for the default; with
	// Assignment they must be.
	Partitions        int32
	ReplicationFactor int16
	// Assignment names the replicas of each partition; empty leaves it to the controller.
	Assignment []Assignment
	// Configs are the topic's settings; a null value is not allowed by Kafka
	// and reported as such.
	Configs []ConfigValue
}

// Assignment names the replicas of one partition.
type Assignment struct {
	Partition int32
	Brokers   []int32
}

// ConfigValue is a setting's name and value; nil means null.
type ConfigValue struct {
	Name  string
	Value *string
}

// CreatedTopic is what became of one NewTopic. On an error only Name and Err
// are set.
type CreatedTopic struct {
	Name              string
	ID                topic.ID
	Partitions        int32
	ReplicationFactor int16
	Configs           map[string]string // as given, nulls left out
	Err               error
}

// decideCreateTopics decides on topics one after the other, in Kafka's order
// of checks. newID gives ids to the topics that are to be created. A name that
// is there more than once is refused once, after the others, as Kafka does.
func decideCreateTopics(img *Image, b *conf.Broker, topics []NewTopic, newID func() topic.ID) ([]CreatedTopic, []Change) {
	results := make([]CreatedTopic, 0, len(topics))
	if err := checkPartitionTotal(b, topics); err != nil {
		for i := range topics {
			results = append(results, CreatedTopic{Name: topics[i].Name, Err: err})
		}
		return results, nil
	}
	names := make(map[string]int, len(topics))
	for i := range topics {
		names[topics[i].Name]++
	}
	place := newPlacer(img)
	var changes []Change
	var twice []CreatedTopic
	for i := range topics {
		t := &topics[i]
		switch names[t.Name] {
		case 0: // reported already
			continue
		case 1:
		default:
			names[t.Name] = 0
			twice = append(twice, CreatedTopic{Name: t.Name, Err: refuse(ErrInvalidRequest, "Duplicate topic name.")})
			continue
		}
		results = append(results, CreatedTopic{Name: t.Name})
		r := &results[len(results)-1]
		configs, err := checkNewTopic(img, b, t)
		if err != nil {
			r.Err = err
			continue
		}
		parts, err := assignNewTopic(img, b, t, place)
		if err != nil {
			r.Err = err
			continue
		}
		r.ID, r.Configs = newID(), configs
		r.Partitions, r.ReplicationFactor = int32(len(parts)), int16(len(parts[0].Replicas))
		changes = append(changes, CreateTopic{Name: t.Name, ID: r.ID, Partitions: parts, Configs: configs})
	}
	return append(results, twice...), changes
}

func checkPartitionTotal(b *conf.Broker, topics []NewTopic) error {
	total := 0
	for i := range topics {
		switch t := &topics[i]; {
		case len(t.Assignment) > 0:
			total += len(t.Assignment)
		case t.Partitions == -1:
			total += int(b.NumPartitions)
		case t.Partitions > 0:
			total += int(t.Partitions)
		}
		if total > partitionsPerRequestMax {
			return refuse(ErrPolicyViolation, "Excessively large number of partitions per request.")
		}
	}
	return nil
}

// checkNewTopic checks the name and the settings.
func checkNewTopic(img *Image, b *conf.Broker, t *NewTopic) (map[string]string, error) {
	if err := topic.ValidateName(t.Name); err != nil {
		return nil, refuse(ErrInvalidTopic, "%s", strings.TrimPrefix(err.Error(), topic.ErrInvalidName.Error()+": "))
	}
	if img.Topic(t.Name) != nil {
		return nil, refuse(ErrTopicExists, "Topic '%s' already exists.", t.Name)
	}
	if other := img.topics.colliding(t.Name); other != "" {
		return nil, refuse(ErrInvalidTopic, "Topic '%s' collides with existing topic: %s", t.Name, other)
	}
	var nulls []string
	configs := make(map[string]string, len(t.Configs))
	for _, c := range t.Configs {
		if c.Value == nil {
			nulls = append(nulls, c.Name)
		} else {
			configs[c.Name] = *c.Value
		}
	}
	if len(nulls) > 0 {
		return nil, refuse(ErrInvalidConfig, "Null value not supported for topic configs: %s", strings.Join(nulls, ","))
	}
	if len(configs) == 0 {
		return nil, nil
	}
	if _, err := conf.ParseTopic(configs, b); err != nil {
		return nil, refuse(ErrInvalidConfig, "%s", err.Error())
	}
	return configs, nil
}

func assignNewTopic(img *Image, b *conf.Broker, t *NewTopic, place *placer) ([]Partition, error) {
	switch {
	case len(t.Assignment) > 0:
		return assignByHand(img, t)
	case t.ReplicationFactor < -1 || t.ReplicationFactor == 0:
		return nil, refuse(ErrInvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	case t.Partitions < -1 || t.Partitions == 0:
		return nil, refuse(ErrInvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	n, factor := t.Partitions, t.ReplicationFactor
	if n == -1 {
		n = b.NumPartitions
	}
	if factor == -1 {
		factor = b.DefaultReplicationFactor
	}
	place.start(nil)
	parts, err := placePartitions(img, place, int(n), int(factor))
	if err != nil {
		return nil, refuse(ErrInvalidReplicationFactor, "Unable to replicate the partition %d time(s): %s", factor, err.Error())
	}
	return parts, nil
}

func placePartitions(img *Image, place *placer, n, factor int) ([]Partition, error) {
	if err := place.check(factor); err != nil {
		return nil, err
	}
	parts := make([]Partition, n)
	shared := make(map[string][]int32) // one slice for every partition with the same replicas
	for i := range parts {
		replicas := share(shared, place.place(factor))
		isr := share(shared, activeOf(img, replicas))
		if len(isr) == 0 {
			return nil, refuse(ErrInvalidReplicationFactor, "All brokers are currently fenced or in controlled shutdown.")
		}
		parts[i] = newPartition(replicas, isr)
	}
	return parts, nil
}

func share(shared map[string][]int32, ids []int32) []int32 {
	key := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		key = append(key, byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
	}
	if same, ok := shared[string(key)]; ok {
		return same
	}
	shared[string(key)] = ids
	return ids
}

func newPartition(replicas, isr []int32) Partition {
	return Partition{Leader: isr[0], Replicas: replicas, ISR: isr}
}

// activeOf returns those brokers that may be in sync.
func activeOf(img *Image, ids []int32) []int32 {
	active := make([]int32, 0, len(ids))
	for _, id := range ids {
		if b, ok := img.Brokers[id]; ok && b.Active() {
			active = append(active, id)
		}
	}
	return active
}

func assignByHand(img *Image, t *NewTopic) ([]Partition, error) {
	if t.ReplicationFactor != -1 {
		return nil, refuse(ErrInvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	}
	if t.Partitions != -1 {
		return nil, refuse(ErrInvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	byIndex := make(map[int32]Partition, len(t.Assignment))
	factor := 0
	for _, a := range t.Assignment {
		if _, twice := byIndex[a.Partition]; twice {
			return nil, refuse(ErrInvalidAssignment, "Found multiple manual partition assignments for partition %d", a.Partition)
		}
		if err := checkAssignment(img, a.Brokers, factor); err != nil {
			return nil, err
		}
		factor = len(a.Brokers)
		isr := activeOf(img, a.Brokers)
		if len(isr) == 0 {
			return nil, refuse(ErrInvalidAssignment, "All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", a.Partition)
		}
		byIndex[a.Partition] = newPartition(slices.Clone(a.Brokers), isr)
	}
	parts := make([]Partition, len(byIndex))
	for i := range parts {
		p, ok := byIndex[int32(i)]
		if !ok {
			return nil, refuse(ErrInvalidAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
		parts[i] = p
	}
	return parts, nil
}

// checkAssignment checks the replicas named for one partition; factor is how
// many the partitions before it have, 0 for the first.
func checkAssignment(img *Image, brokers []int32, factor int) error {
	if len(brokers) == 0 {
		return refuse(ErrInvalidAssignment, "The manual partition assignment includes an empty replica list.")
	}
	sorted := slices.Sorted(slices.Values(brokers))
	for i, id := range sorted {
		if _, ok := img.Brokers[id]; !ok {
			return refuse(ErrInvalidAssignment, "The manual partition assignment includes broker %d, but no such broker is registered.", id)
		}
		if i > 0 && sorted[i-1] == id {
			return refuse(ErrInvalidAssignment, "The manual partition assignment includes the broker %d more than once.", id)
		}
	}
	if factor > 0 && len(brokers) != factor {
		return refuse(ErrInvalidAssignment, "The manual partition assignment includes a partition with %d replica(s), but this is not consistent with previous partitions, which have %d replica(s).", len(brokers), factor)
	}
	return nil
}

// TopicRef names a topic by name or, when Name is "", by id.
type TopicRef struct {
	Name string
	ID   topic.ID
}

// TopicResult is what became of a request about one topic.
type TopicResult struct {
	Name string // "" when a topic was named by an id that is unknown
	ID   topic.ID
	Err  error
}

// decideDeleteTopics decides which topics go. A topic that is named twice, by
// whatever names, is refused once.
func decideDeleteTopics(img *Image, b *conf.Broker, refs []TopicRef) ([]TopicResult, []Change) {
	results := make([]TopicResult, 0, len(refs))
	if !b.DeleteTopicEnable {
		for _, r := range refs {
			results = append(results, TopicResult{Name: r.Name, ID: r.ID, Err: refuse(ErrTopicDeletionDisabled, "Topic deletion is disabled.")})
		}
		return results, nil
	}
	given := make(map[TopicRef]int, len(refs))
	byName, byID := make(map[topic.ID]bool), make(map[topic.ID]bool)
	for _, r := range refs {
		given[r]++
		if t := img.find(r); t != nil {
			if r.Name != "" {
				byName[t.ID] = true
			} else {
				byID[t.ID] = true
			}
		}
	}
	var changes []Change
	for _, r := range refs {
		times := given[r]
		if times == 0 {
			continue // reported already
		}
		if times > 1 {
			given[r] = 0
		}
		t := img.find(r)
		result := TopicResult{Name: r.Name, ID: r.ID, Err: checkDelete(r, t, times)}
		if result.Err == nil {
			result.Name, result.ID = t.Name, t.ID
			if byName[t.ID] && byID[t.ID] {
				if r.Name == "" {
					continue // Kafka answers for the name only
				}
				result.Err = refuse(ErrInvalidRequest, "The provided topic name maps to an ID that was already supplied.")
			} else {
				changes = append(changes, DeleteTopic{ID: t.ID})
			}
		}
		results = append(results, result)
	}
	return results, changes
}

func checkDelete(r TopicRef, t *Topic, times int) error {
	switch {
	case r.Name == "" && r.ID.IsZero():
		return refuse(ErrInvalidRequest, "Neither topic name nor id were specified.")
	case r.Name != "" && !r.ID.IsZero():
		return refuse(ErrInvalidRequest, "You may not specify both topic name and topic id.")
	case times > 1 && r.Name != "":
		return refuse(ErrInvalidRequest, "Duplicate topic name.")
	case times > 1:
		return refuse(ErrInvalidRequest, "Duplicate topic id.")
	case t == nil && r.Name != "":
		return unknownTopic()
	case t == nil:
		return refuse(ErrUnknownTopicID, "This server does not host this topic ID.")
	}
	return nil
}

func unknownTopic() error {
	return refuse(ErrUnknownTopic, "This server does not host this topic-partition.")
}

func (img *Image) find(r TopicRef) *Topic {
	switch {
	case r.Name != "" && r.ID.IsZero():
		return img.Topic(r.Name)
	case r.Name == "":
		return img.TopicByID(r.ID)
	}
	return nil
}

// MorePartitions asks for a topic to have Count partitions in all.
type MorePartitions struct {
	Name  string
	Count int32
	// Assignment names the replicas of each new partition; nil leaves it to the controller.
	Assignment [][]int32
}

func decideCreatePartitions(img *Image, topics []MorePartitions) ([]TopicResult, []Change) {
	results := make([]TopicResult, 0, len(topics))
	names := make(map[string]int, len(topics))
	for i := range topics {
		if names[topics[i].Name]++; names[topics[i].Name] == 2 {
			results = append(results, TopicResult{Name: topics[i].Name, Err: refuse(ErrInvalidRequest, "Duplicate topic name.")})
		}
	}
	place := newPlacer(img)
	var changes []Change
	for i := range topics {
		if names[topics[i].Name] > 1 {
			continue
		}
		change, err := morePartitions(img, &topics[i], place)
		results = append(results, TopicResult{Name: topics[i].Name, ID: change.ID, Err: err})
		if err == nil {
			changes = append(changes, change)
		}
	}
	return results, changes
}

func morePartitions(img *Image, m *MorePartitions, place *placer) (AddPartitions, error) {
	none := AddPartitions{}
	t := img.Topic(m.Name)
	if t == nil {
		return none, &Error{Kind: ErrUnknownTopic} // Kafka has no words for it here
	}
	have := len(t.Partitions)
	add := int(m.Count) - have
	switch {
	case add == 0:
		return none, refuse(ErrInvalidPartitions, "Topic already has %d partition(s).", have)
	case add < 0:
		return none, refuse(ErrInvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", m.Name, have, m.Count)
	case m.Assignment != nil && len(m.Assignment) != add:
		return none, refuse(ErrInvalidAssignment, "Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", add, len(m.Assignment))
	case add > partitionsPerRequestMax:
		return none, refuse(ErrPolicyViolation, "Excessively large number of additional partitions per request.")
	}
	factor := len(except(t.Partitions[0].Replicas, t.Partitions[0].RemovingReplicas))
	change := AddPartitions{ID: t.ID, First: int32(have)}
	if m.Assignment == nil {
		place.start(t.Partitions)
		parts, err := placePartitions(img, place, add, factor)
		if err != nil {
			return none, err
		}
		change.Partitions = parts
		return change, nil
	}
	for i, brokers := range m.Assignment {
		if err := checkAssignment(img, brokers, factor); err != nil {
			return none, err
		}
		isr := activeOf(img, brokers)
		if len(isr) == 0 {
			return none, refuse(ErrInvalidAssignment, "All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", have+i)
		}
		change.Partitions = append(change.Partitions, newPartition(slices.Clone(brokers), isr))
	}
	return change, nil
}

// decideConfirmDeleted drops confirmations that are no news, and that of the bucket
// until no other broker is left to confirm: it may not have heard of the deletion
// yet, and go on putting objects there, as the leader that it was.
func decideConfirmDeleted(img *Image, c ConfirmDeleted) []Change {
	d, ok := img.Deleted(c.ID)
	if !ok {
		return nil
	}
	if c.Broker >= 0 && !slices.Contains(d.Brokers, c.Broker) {
		c.Broker = -1
	}
	others := slices.ContainsFunc(d.Brokers, func(id int32) bool { return id != c.Broker })
	c.Tier = c.Tier && d.Tier && !others
	if c.Broker < 0 && !c.Tier {
		return nil
	}
	return []Change{c}
}
