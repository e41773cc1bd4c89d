package monitor

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pnode/node/ledger"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// crowded returns a state with so many members that know eight links each, of which a plan places three, and who shows it.
func crowded(t testing.TB, members int) (*Monitor, consensus.State) {
	state := planned(t, "1f1b", 6)
	for i := range members - 3 {
		p := plan.PeerID(fmt.Sprintf("12D3KooWFZs6hXx3rFQAkN9m7e8PpYZ1WzZkq8yXvT3sGd%06d", i))
		m := consensus.Member{Peer: p, State: consensus.Active, Label: fmt.Sprintf("machine-%d", i%900), Profile: plan.Profile{Devices: []plan.DeviceProfile{
			{Name: "cuda0", Model: "NVIDIA GeForce RTX 4090", MatMulFLOPS: int64(6e13 + 1e10*float64(i)), MemoryBytesPerS: 1e12, MemoryFreeBytes: 24 << 30},
		}}}
		if i%10 == 0 {
			m.State = consensus.Gone
		}
		for j := range 8 {
			m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: plan.PeerID(fmt.Sprintf("12D3KooWFZs6hXx3rFQAkN9m7e8PpYZ1WzZkq8yXvT3sGd%06d", (i+j*j+1)%(members-3))), BytesPerS: 3e6, RTTNanos: 1e7})
		}
		for j := range 6 {
			m.Addrs = append(m.Addrs, fmt.Sprintf("/ip4/203.0.%d.%d/udp/4001/quic-v1/p2p/%s", j, i%256, p))
		}
		state.Members = append(state.Members, m)
	}
	m := watcher()
	m.Consensus = &ownLog{applied: state}
	m.Addrs, m.Kept, m.Recorded = func() []string { return nil }, func() plan.Step { return 0 }, func() ledger.Position { return ledger.Position{} }
	m.Heard = func(p plan.PeerID) time.Duration { return time.Duration(len(p)%2) * time.Hour }
	m.Unheard = m.Heard
	return m, state
}

// TestThousandMembers: what a page asks for each second stays as small as in a small run, and no view is looked up member by member.
func TestThousandMembers(t *testing.T) {
	m, state := crowded(t, 1000)
	began := time.Now()
	s := m.Status()
	t.Logf("status: %v", time.Since(began))
	all, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	brief, err := json.Marshal(s.Brief())
	if err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	p, err := Profiles(state, m.Beats)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("profiles: %v", time.Since(began))
	profiles, _ := json.Marshal(p)
	t.Logf("status %d bytes, brief %d, profiles %d", len(all), len(brief), len(profiles))
	if len(brief) > 16<<10 || len(all) < 20*len(brief) {
		t.Errorf("a brief status has %d bytes of %d", len(brief), len(all))
	}
}

func BenchmarkThousandMembers(b *testing.B) {
	m, state := crowded(b, 1000)
	b.Run("status", func(b *testing.B) {
		for b.Loop() {
			m.Status()
		}
	})
	b.Run("profiles", func(b *testing.B) {
		for b.Loop() {
			if _, err := Profiles(state, m.Beats); err != nil {
				b.Fatal(err)
			}
		}
	})
}
