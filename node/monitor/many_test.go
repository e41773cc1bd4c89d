package monitor

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pnode/node/ledger"
	"pnode/planner"
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
	short, _ := json.Marshal(p.Brief())
	t.Logf("status %d bytes, brief %d, profiles %d, brief %d", len(all), len(brief), len(profiles), len(short))
	if len(brief) > 16<<10 || len(all) < 20*len(brief) {
		t.Errorf("a brief status has %d bytes of %d", len(brief), len(all))
	}
	if len(short) > 32<<10 || len(profiles) < 20*len(short) {
		t.Errorf("brief profiles have %d bytes of %d", len(short), len(profiles))
	}
}

// TestMembersAroundAPlan: what a plan's step takes does not change where members without a part in it are left out. A line that nobody measured is like
// the usual ones of its ends, which these know.
func TestMembersAroundAPlan(t *testing.T) {
	_, state := crowded(t, 100)
	for i := range state.Members[:3] {
		state.Members[i].Profile.Links = nil
	}
	in := planner.InputOf(*state.Run)
	for i, m := range state.Members {
		if i >= 3 {
			for j, p := range state.Plan.Peers() {
				m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: p, BytesPerS: int64(1e5 * (i + j + 1)), RTTNanos: int64(1e6 * (i + j))})
			}
			state.Members[i] = m
		}
		in.Members = append(in.Members, planner.Member{Peer: m.Peer, Profile: m.Profile})
	}
	want, err := planner.Timing(in, state.Plan, planner.Measured{})
	if err != nil {
		t.Fatal(err)
	}
	in.Members = membersAround(state, state.Plan)
	got, err := planner.Timing(in, state.Plan, planner.Measured{})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("with the members around the plan %+v, %v, want %+v", got, err, want)
	}
	for i, m := range in.Members {
		if (len(m.Profile.Devices) > 0) != (i < 3) {
			t.Errorf("member %d of those around the plan has %d devices", i, len(m.Profile.Devices))
		}
	}
	for i := range state.Members[3:] {
		state.Members[3+i].Profile.Links = nil
	}
	in.Members = membersAround(state, state.Plan)
	if without, err := planner.Timing(in, state.Plan, planner.Measured{}); err != nil || len(in.Members) != 3 || reflect.DeepEqual(without, want) {
		t.Errorf("%d members are around the plan, %v; the links of others make no difference", len(in.Members), err)
	}
}

// placed returns a monitor of a state whose plan has a stage for each of so many members: in replicas of eight stages.
func placed(t testing.TB, members int) (*Monitor, consensus.State) {
	m, state := crowded(t, members)
	run := *state.Run
	run.Train.Replicas, run.Train.Stages = members/8, 8
	run.Train.Micros, run.Train.SumGroups = 2*run.Train.Replicas, run.Train.Replicas
	state.Run = &run
	state.Plan.Replicas = nil
	for r := range run.Train.Replicas {
		pipe := plan.Pipeline{FirstMicro: plan.Micro(2 * r), Micros: 2, Warmups: []int{1, 1, 1, 1, 1, 1, 1, 0}}
		for s := range 8 {
			at := state.Members[8*r+s]
			pipe.Stages = append(pipe.Stages, plan.Placement{Peer: at.Peer, Device: at.Profile.Devices[0].Name, Layers: plan.LayerRange{First: s, End: s + 1}, Codec: "f32"})
		}
		state.Plan.Replicas = append(state.Plan.Replicas, pipe)
	}
	m.Consensus = &ownLog{applied: state}
	return m, state
}

// BenchmarkThousandMembers reports what a status costs with a view of the plan that is made, and with one that was made before, and what profiles do: of
// a plan of three members, and of one of all.
func BenchmarkThousandMembers(b *testing.B) {
	for name, make := range map[string]func(testing.TB, int) (*Monitor, consensus.State){"3 placed": crowded, "all placed": placed} {
		m, state := make(b, 1000)
		if _, err := m.planView(state); err != nil {
			b.Fatal(err)
		}
		b.Run(name+"/first status", func(b *testing.B) {
			for b.Loop() {
				m.view.newest.until = time.Time{}
				m.Status()
			}
		})
		b.Run(name+"/status", func(b *testing.B) {
			for b.Loop() {
				m.view.newest.until = time.Now().Add(time.Hour)
				m.Status()
			}
		})
		b.Run(name+"/profiles", func(b *testing.B) {
			for b.Loop() {
				if _, err := Profiles(state, m.Beats); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
