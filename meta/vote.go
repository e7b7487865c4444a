package meta

import "github.com/varvelog/varve/meta/topic"

// VoteRemovedSetting names the metadata directory with which a node's vote was
// taken away: with it the node gets none by itself. It is one of the broker's
// own settings, so that it outlives the controller and the registration. A node
// with another directory is a new one, as voters are to Kafka (KIP-853).
const VoteRemovedSetting = "varve.quorum.vote.removed"

// anyDirectory stands for a directory that was not known when the vote was
// taken away.
const anyDirectory = "any"

// VoteRemoved reports whether the vote of a node, as it is registered, was taken
// away and not given again.
func (img *Image) VoteRemoved(b Broker) bool {
	removed := img.BrokerConfigs(b.ID)[VoteRemovedSetting]
	return removed != "" && (removed == anyDirectory || removed == directoryText(b.Directory))
}

func directoryText(id topic.ID) string {
	if id.IsZero() {
		return anyDirectory
	}
	return id.String()
}

// voteRemoved and voteRestored are what a node's settings say of it from then on.
func (img *Image) voteRemoved(id int32) []Change {
	text := directoryText(img.Brokers[id].Directory)
	if img.BrokerConfigs(id)[VoteRemovedSetting] == text {
		return nil
	}
	return []Change{SetConfigs{Kind: BrokerConfig, Name: brokerName(id), Set: map[string]string{VoteRemovedSetting: text}}}
}

func (img *Image) voteRestored(id int32) []Change {
	if img.BrokerConfigs(id)[VoteRemovedSetting] == "" {
		return nil
	}
	return []Change{SetConfigs{Kind: BrokerConfig, Name: brokerName(id), Remove: []string{VoteRemovedSetting}}}
}
