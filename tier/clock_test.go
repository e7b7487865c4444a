package tier

import "testing"

// A clock that was ahead and is set back leaves data that began in the future: it is due after the lag all the same, not
// when that time has come.
func TestAClockThatIsSetBackHoldsNoUploadUp(t *testing.T) {
	p := &partition{known: true, cfg: TopicConfig{Enabled: true, MaxLagMillis: 1000, RetentionMillis: -1}}
	c := &core{}
	ahead := logView{LogOffsets: LogOffsets{End: 5, ActiveBytes: 100, ActiveSince: 90_000_000}}
	for _, wall := range []int64{89_999_900, 50_000, 50_500} {
		p.takeView(ahead, instant{wall: wall, steady: wall})
		if p.rollLane(c, instant{wall: wall, steady: wall}); p.rolling {
			t.Fatalf("sealed at %d", wall)
		}
	}
	// Neither a fresh look at the log nor a step without one forgets when it was noticed.
	p.takeView(ahead, instant{wall: 51_000, steady: 51_000})
	if p.rollLane(c, instant{wall: 51_001, steady: 51_001}); !p.rolling {
		t.Fatalf("data of %d waits although the clock says 51001", p.log.ActiveSince)
	}
}
