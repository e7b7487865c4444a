package meta

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
)

// TestMembersOfAQuorumAreReadBack covers every width of the lengths that raft's
// encoder writes, and every cut of them.
func TestMembersOfAQuorumAreReadBack(t *testing.T) {
	for _, n := range []int{0, 1, 3, 5, 15, 16, 300} {
		var c raft.Configuration
		for i := range n {
			c.Servers = append(c.Servers, raft.Server{
				Suffrage: raft.ServerSuffrage(i % 3), ID: raft.ServerID(fmt.Sprint(i)),
				Address: raft.ServerAddress(fmt.Sprintf("%0*d:9093", 1+i*7%400, i)),
			})
		}
		b := raft.EncodeConfiguration(c)
		got, err := decodeQuorum(b)
		if err != nil || !slices.Equal(got.Servers, c.Servers) {
			t.Fatalf("%d members become %d, %v", n, len(got.Servers), err)
		}
		for cut := range min(len(b), 600) {
			if _, err := decodeQuorum(b[:cut]); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%d of %d bytes are taken: %v", cut, len(b), err)
			}
		}
	}
}

func TestMembersThatAreOnlyClaimedAreRefused(t *testing.T) {
	servers := append([]byte{0x81, 0xa7}, "Servers"...)
	for name, claim := range map[string][]byte{
		"array 16":     {0xdc, 0xff, 0xff},
		"array 32":     {0xdd, 0xff, 0xff, 0xff, 0xff},
		"map 32":       {0xdf, 0x7f, 0xff, 0xff, 0xff},
		"string 32":    {0xdb, 0xff, 0xff, 0xff, 0xff},
		"small array":  {0x9f, 0xc0, 0xc0},
		"nested":       {0x91, 0x81, 0xa1, 'x', 0x91, 0x91, 0x90},
		"an extension": {0xc7, 0x00, 0x00},
	} {
		if _, err := decodeQuorum(append(slices.Clone(servers), claim...)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
