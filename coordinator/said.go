package coordinator

// What a member says of itself is written into one record, with little else. A record that does not fit a batch would fail the
// append, and with it everybody whose request is in the same round; so who says too much is refused before anything is decided.

// talkative says whether a request has more to say than a record may hold. The other half of it is left for what the group adds.
func (c *core) talkative(said int) bool { return said > c.cfg.BatchBytesMax/2 }

func (q *JoinRequest) said() int {
	n := saidIn(q.MemberID, q.ClientID, q.ClientHost, q.ProtocolType) + saidIf(q.InstanceID)
	for i := range q.Protocols {
		n += len(q.Protocols[i].Name) + len(q.Protocols[i].Metadata)
	}
	return n
}

func (q *ConsumerHeartbeatRequest) said() int {
	return saidIn(q.MemberID, q.ClientID, q.ClientHost) + saidIn(q.Topics...) + saidIf(q.InstanceID, q.RackID, q.Regex, q.Assignor)
}

func (q *ShareHeartbeatRequest) said() int {
	return saidIn(q.MemberID, q.ClientID, q.ClientHost) + saidIn(q.Topics...) + saidIf(q.RackID)
}

// saidIn is what strings take in a record, with their lengths.
func saidIn(texts ...string) int {
	n := 0
	for _, s := range texts {
		n += len(s) + 4
	}
	return n
}

func saidIf(texts ...*string) int {
	n := 0
	for _, s := range texts {
		if s != nil {
			n += saidIn(*s)
		}
	}
	return n
}
