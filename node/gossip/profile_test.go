package gossip

import (
	"encoding/json"
	"errors"
	"testing"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func TestTheRosterFollowsWhatMembersSay(t *testing.T) {
	profile := plan.Profile{Devices: []plan.DeviceProfile{{Name: "cpu", MatMulFLOPS: 1}}}
	state := consensus.State{Members: []consensus.Member{
		{Peer: "a", ProcessEpoch: 1, State: consensus.Active, Addrs: []string{"x"}, Profile: profile},
		{Peer: "b", ProcessEpoch: 1, State: consensus.Gone},
	}}
	for name, c := range map[string]struct {
		news Profile
		want bool
	}{
		"nothing new":        {Profile{Peer: "a", Epoch: 1, Addrs: []string{"x"}, Profile: profile}, false},
		"another address":    {Profile{Peer: "a", Epoch: 1, Addrs: []string{"y"}, Profile: profile}, true},
		"another profile":    {Profile{Peer: "a", Epoch: 1, Addrs: []string{"x"}}, true},
		"an earlier process": {Profile{Peer: "a", Epoch: 9, Addrs: []string{"y"}}, false},
		"one that is gone":   {Profile{Peer: "b", Epoch: 1, Addrs: []string{"y"}}, false},
		"a stranger":         {Profile{Peer: "c", Epoch: 1}, false},
	} {
		if _, got := c.news.Update(state); got != c.want {
			t.Errorf("%s: update %v, want %v", name, got, c.want)
		}
		if in := c.news.in(state); in != (name == "nothing new") {
			t.Errorf("%s: the roster has it: %v", name, in)
		}
	}
}

// Attack: a profile that no machine has comes by gossip. Nobody hears it.
func TestAbsurdProfilesAreNotHeard(t *testing.T) {
	card := plan.DeviceProfile{Name: "cuda:0", MatMulFLOPS: 1e12}
	for name, p := range map[string]plan.Profile{
		"one name twice": {Devices: []plan.DeviceProfile{card, card}}, "1e17 FLOP/s": {Devices: []plan.DeviceProfile{{Name: "cpu", MatMulFLOPS: 1e17}}},
		"a link to itself": {Links: []plan.LinkProfile{{Peer: "a"}}}, "2^62 bytes": {DiskFreeBytes: 1 << 62},
	} {
		data, err := json.Marshal(Profile{Peer: "a", Profile: p})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeProfile(data); !errors.Is(err, errBadMessage) || !errors.Is(err, plan.ErrBadProfile) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecodeProfile(f *testing.F) {
	f.Add([]byte(`{"peer":"a","boot":1,"addrs":["/ip4/127.0.0.1/udp/1/quic-v1"],"profile":{"devices":[],"disk_free_bytes":1}}`))
	f.Add([]byte(`{"peer":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := decodeProfile(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if q, err := decodeProfile(again); err != nil || q.Peer != p.Peer || q.Epoch != p.Epoch {
			t.Fatalf("%+v reads back as %+v, %v", p, q, err)
		}
	})
}
