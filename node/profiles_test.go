package node

import (
	"encoding/json"
	"testing"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func TestTheRosterFollowsWhatMembersSay(t *testing.T) {
	profile := plan.Profile{Devices: []plan.DeviceProfile{{Name: "cpu", MatMulFLOPS: 1}}}
	state := consensus.State{Members: []consensus.Member{
		{Peer: "a", Boot: 1, State: consensus.Active, Addrs: []string{"x"}, Profile: profile},
		{Peer: "b", Boot: 1, State: consensus.Gone},
	}}
	for name, c := range map[string]struct {
		news profileNews
		want bool
	}{
		"nothing new":        {profileNews{Peer: "a", Boot: 1, Addrs: []string{"x"}, Profile: profile}, false},
		"another address":    {profileNews{Peer: "a", Boot: 1, Addrs: []string{"y"}, Profile: profile}, true},
		"another profile":    {profileNews{Peer: "a", Boot: 1, Addrs: []string{"x"}}, true},
		"an earlier process": {profileNews{Peer: "a", Boot: 9, Addrs: []string{"y"}}, false},
		"one that is gone":   {profileNews{Peer: "b", Boot: 1, Addrs: []string{"y"}}, false},
		"a stranger":         {profileNews{Peer: "c", Boot: 1}, false},
	} {
		if _, got := c.news.update(state); got != c.want {
			t.Errorf("%s: update %v, want %v", name, got, c.want)
		}
	}
}

func FuzzDecodeProfileNews(f *testing.F) {
	f.Add([]byte(`{"peer":"a","boot":1,"addrs":["/ip4/127.0.0.1/udp/1/quic-v1"],"profile":{"devices":[],"disk_free_bytes":1}}`))
	f.Add([]byte(`{"peer":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := decodeProfileNews(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if q, err := decodeProfileNews(again); err != nil || q.Peer != p.Peer || q.Boot != p.Boot {
			t.Fatalf("%+v reads back as %+v, %v", p, q, err)
		}
	})
}
