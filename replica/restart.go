package replica

import "github.com/varvelog/varve/hot"

// PreviousEpoch is the broker epoch under which this data directory was used last, as the next registration names it: -1,
// and any other than the controller knows, says that the broker may lack records it had acknowledged (KIP-966). It does when
// its directory is new, was wiped or put back from a copy; and when acknowledged records are not synced here, unless the
// last stop was clean.
func PreviousEpoch(s *hot.Store) int64 {
	if s.Durability() == hot.Replicated && !s.Clean() {
		return NoBrokerEpoch
	}
	return s.BrokerEpoch()
}
