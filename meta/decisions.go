package meta

import (
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// Decisions are the controller's decisions without a quorum: pure functions of
// an image and an event, the very ones that Node proposes. They are for
// simulators and tools; whoever serves a cluster has a Node. What they return
// becomes true by Image.Apply, once it is committed.
type Decisions struct {
	// Broker has the static settings; dynamic ones are in the image.
	Broker *conf.Broker
	// NodeID is the node that decides.
	NodeID int32
	// NewID gives ids to new topics.
	NewID func() topic.ID
}

// NewImage is the image before the first command.
func NewImage() *Image { return newImage() }

// settings are the static settings with the image's dynamic ones over them, as
// Node.Broker has them.
func (d Decisions) settings(img *Image) *conf.Broker {
	b, err := img.EffectiveBroker(d.Broker, d.NodeID)
	if err != nil {
		return d.Broker
	}
	return b
}

// Register decides on a broker's registration. alive says that the broker's
// earlier start is still heard from.
func (d Decisions) Register(img *Image, r Registration, alive bool) ([]Change, error) {
	return decideRegister(img, d.settings(img), r, alive)
}

// ChangeBroker fences or unfences a broker, or marks it as shutting down.
func (d Decisions) ChangeBroker(img *Image, want ChangeBroker) ([]Change, error) {
	return decideBroker(img, d.settings(img), want)
}

// Unregister forgets a broker.
func (d Decisions) Unregister(img *Image, id int32) ([]Change, error) {
	return decideUnregister(img, d.settings(img), id)
}

// AlterPartitions decides on the wishes of a broker for its partitions.
func (d Decisions) AlterPartitions(img *Image, leader int32, epoch int64, wishes []AlterPartition) ([]AlteredPartition, []Change, error) {
	return decideAlterPartition(img, d.settings(img), leader, epoch, wishes)
}

// ElectLeaders elects preferred leaders or, with unclean, any leader.
func (d Decisions) ElectLeaders(img *Image, unclean bool, partitions []PartitionRef) ([]ElectionResult, []Change) {
	return decideElection(img, d.settings(img), unclean, partitions)
}

// CreateTopics decides on new topics.
func (d Decisions) CreateTopics(img *Image, topics []NewTopic) ([]CreatedTopic, []Change) {
	return decideCreateTopics(img, d.settings(img), topics, d.NewID)
}

// DeleteTopics decides which topics go.
func (d Decisions) DeleteTopics(img *Image, refs []TopicRef) ([]TopicResult, []Change) {
	return decideDeleteTopics(img, d.settings(img), refs)
}

// ConfirmDeleted notes that a deleted topic's data is gone somewhere.
func (d Decisions) ConfirmDeleted(img *Image, c ConfirmDeleted) []Change {
	return decideConfirmDeleted(img, c)
}

// AlterConfigs decides on changes of settings.
func (d Decisions) AlterConfigs(img *Image, changes []ConfigChange) ([]ConfigResult, []Change) {
	return decideConfigs(img, d.Broker, d.NodeID, changes)
}

// AlterQuotas decides on quotas of clients.
func (d Decisions) AlterQuotas(img *Image, wishes []QuotaChange) ([]QuotaResult, []Change, error) {
	return decideQuotas(img, wishes)
}

// Reassign starts, replaces and cancels reassignments.
func (d Decisions) Reassign(img *Image, wishes []Reassign) ([]ReassignResult, []Change) {
	return decideReassign(img, d.settings(img), wishes, true)
}
