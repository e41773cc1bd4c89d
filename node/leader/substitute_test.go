package leader

import (
	"slices"
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/node/leader/blame"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// twins is a plan of two replicas with the same cut: a b, whose b coordinates, and c d.
func twins() plan.Plan {
	p := twoByTwo()
	for s, place := range p.Replicas[0].Stages {
		p.Replicas[1].Stages[s].Layers = place.Layers
	}
	return p
}

// lossOf is a view of that plan in which a member's process has ended.
func lossOf(peer plan.PeerID) view {
	v := view{Plan: twins(), Checkpoint: 30, remains: remains{Layers: 6}}
	for _, p := range []plan.PeerID{"a", "b", "c", "d"} {
		v.Members = append(v.Members, memberView{Peer: p, Active: true, Ended: p == peer})
	}
	return v
}

// TestWhoGoesOnInALostOnesPlace: who has its layers, while nobody has given the generation up and nothing ends it.
func TestWhoGoesOnInALostOnesPlace(t *testing.T) {
	for name, c := range map[string]struct {
		lost   plan.PeerID
		change func(*view)
		want   plan.PeerID
	}{
		"the other replica's":       {"a", func(*view) {}, "c"},
		"the other replica's again": {"d", func(*view) {}, "b"},
		"the coordinator":           {"b", func(*view) {}, "d"},
		"another cut":               {"a", func(v *view) { v.Plan = twoByTwo() }, ""},
		"who is silent too":         {"a", func(v *view) { v.Members[2].Silent = DeadAfter + time.Second }, ""},
		"who leaves":                {"a", func(v *view) { v.Members[2].Active, v.Members[2].Leaving = false, true }, ""},
		"who was started again":     {"a", func(v *view) { v.Members[2].Restarted = true }, ""},
		"another is gone":           {"a", func(v *view) { v.Members = v.Members[:3] }, ""},
		"a generation given up":     {"a", func(v *view) { v.Stall = stall{Stall: gossip.Stall{For: time.Second}} }, ""},
		"a spoilt one":              {"a", func(v *view) { v.Trial.Accusations = []accusation{{Fault: plan.Fault{Kind: plan.BadTensor}}} }, ""},
		"a pause":                   {"a", func(v *view) { v.Paused = true }, ""},
		"a salvage":                 {"a", func(v *view) { v.Salvage = &consensus.Salvage{} }, ""},
		"a substitute before it":    {"a", func(v *view) { v.Carried = carried{"d", "b"} }, ""},
	} {
		v := lossOf(c.lost)
		c.change(&v)
		if got, replays := v.substitute(c.lost); got != c.want || replays {
			t.Errorf("%s: %q goes on, want %q; from a checkpoint: %t", name, got, c.want, replays)
		}
		if got := decide(v); got.Gone == c.lost && got.Ended && got.By != c.want {
			t.Errorf("%s: the verdict is %+v", name, got)
		}
	}
	mute := lossOf("")
	mute.Members[0].Silent = UnreachableAfter + time.Second
	if got := decide(mute); got.Gone != "a" || got.By != "" {
		t.Errorf("who is silent may be back, and the generation has ended: %+v", got)
	}
}

// TestASubstituteIsFollowedByAPlan: after a pause, and at once where the generation is given up or its substitute is gone too.
func TestASubstituteIsFollowedByAPlan(t *testing.T) {
	carriedOn := func(change func(*view)) view {
		v := lossOf("")
		v.Members, v.Carried = v.Members[1:], carried{"a", "c"}
		v.Names = map[plan.PeerID]string{"a": "desk", "c": "lab"}
		change(&v)
		return v
	}
	const why = "desk is gone, and lab computes its part"
	for name, c := range map[string]struct {
		change func(*view)
		want   verdict
	}{
		"asks for a pause":       {func(*view) {}, verdict{Pause: true, Why: why}},
		"without copies":         {func(v *view) { v.Copying = true }, verdict{Pause: true, Why: why}},
		"whoever else comes":     {func(v *view) { v.Members = append(v.Members, memberView{Peer: "e", Active: true, Restarted: true}) }, verdict{Pause: true, Why: why}},
		"waits for the save":     {func(v *view) { v.Paused, v.SavePatience = true, time.Minute }, verdict{}},
		"plans then":             {func(v *view) { v.Paused, v.Saved = true, true }, verdict{Plan: true, Why: why}},
		"the substitute is gone": {func(v *view) { v.Members = v.Members[:1]; v.BrokenFor = time.Minute }, verdict{Plan: true, Why: "desk is gone"}},
		"given up": {func(v *view) {
			v.Stall, v.BrokenFor = stall{Stall: gossip.Stall{For: time.Second}}, time.Minute
		}, verdict{Plan: true, Why: "desk is gone"}},
	} {
		if got := decide(carriedOn(c.change)); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestWhoeverIsAccusedAnswers: a lost member for what it had sent, also while another one goes on in its place, and that one for its own.
func TestWhoeverIsAccusedAnswers(t *testing.T) {
	for accused, kind := range map[plan.PeerID]plan.FaultKind{"a": plan.BadTensor, "c": plan.NoProgress} {
		v := lossOf("")
		v.Members, v.Carried = v.Members[1:], carried{"a", "c"}
		v.Stall = stall{Stall: gossip.Stall{For: stallGrace + time.Second, By: []plan.PeerID{"b", "d"}}}
		v.Trial = blame.Trial{Accusations: []accusation{{By: "b", Fault: plan.Fault{Accused: accused, Kind: kind, Step: 31}}}}
		if got := decide(v).Rule; got.Peer != accused || got.Accuser != "b" || got.Kind != kind || !got.Out {
			t.Errorf("%s is accused, the ruling is %+v", accused, got)
		}
	}
	said := []accusation{
		{By: "b", Fault: plan.Fault{Accused: "a", Kind: plan.NoProgress}},
		{By: "c", Fault: plan.Fault{Accused: "a", Kind: plan.BadTensor}},
		{By: "b", Fault: plan.Fault{Accused: "c", Kind: plan.NoProgress}},
	}
	if got := (carried{"a", "c"}).counted(said); !slices.Equal(got, said[1:]) {
		t.Errorf("while one catches up, %+v of %+v counts", got, said)
	}
}

// TestWhoGoesOnFromTheCheckpoint: nobody where somebody has the state in memory, and only while all others carry the plan out.
func TestWhoGoesOnFromTheCheckpoint(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*view)
		want    plan.PeerID
		replays bool
	}{
		"the first one":            {func(*view) {}, "d", true},
		"the next one where it is": {func(v *view) { v.Replayers["a"] = []plan.PeerID{"b"} }, "b", true},
		"nobody who could":         {func(v *view) { v.Replayers = nil }, "", false},
		"in memory":                {func(v *view) { v.Plan = twins() }, "c", false},
		"one who leaves":           {func(v *view) { v.Members[3].Active, v.Members[3].Leaving = false, true }, "", false},
		"another one silent":       {func(v *view) { v.Members[1].Silent = DeadAfter + time.Second }, "", false},
		"two lost at once":         {func(v *view) { v.Members[2].Ended = true }, "", false},
		"a pause":                  {func(v *view) { v.Paused = true }, "", false},
		"a substitute before it":   {func(v *view) { v.Carried = carried{"c", "b"} }, "", false},
	} {
		v := lossOf("a")
		v.Plan, v.Replayers = twoByTwo(), map[plan.PeerID][]plan.PeerID{"a": {"d", "b", "c"}}
		c.change(&v)
		if by, replays := v.substitute("a"); by != c.want || replays != c.replays {
			t.Errorf("%s: %q goes on, from the checkpoint: %t; want %q, %t", name, by, replays, c.want, c.replays)
		}
		if got := decide(v); got.Gone == "a" && (got.By != c.want || got.Replays != c.replays) {
			t.Errorf("%s: the verdict is %+v", name, got)
		}
	}
}

// TestWhoCouldGoOnFromTheCheckpoint: who has stored most of the lost state, while all others have kept what they sent since and the steps
// since are few.
func TestWhoCouldGoOnFromTheCheckpoint(t *testing.T) {
	const second = int64(time.Second)
	for name, c := range map[string]struct {
		lost   plan.PeerID
		newest plan.Step
		change func(*consensus.State, map[plan.PeerID]*gossip.Heartbeat)
		want   []plan.PeerID
	}{
		"who has stored it":      {"a", 37, func(*consensus.State, map[plan.PeerID]*gossip.Heartbeat) {}, []plan.PeerID{"d", "b", "c"}},
		"the coordinator's":      {"d", 37, func(*consensus.State, map[plan.PeerID]*gossip.Heartbeat) {}, nil},
		"one that has failed":    {"a", 37, func(_ *consensus.State, b map[plan.PeerID]*gossip.Heartbeat) { b["d"].NoReplay = true }, []plan.PeerID{"b", "c"}},
		"one that has forgotten": {"a", 37, func(_ *consensus.State, b map[plan.PeerID]*gossip.Heartbeat) { b["c"].Kept = 32 }, nil},
		"one that keeps nothing": {"a", 37, func(_ *consensus.State, b map[plan.PeerID]*gossip.Heartbeat) { b["c"].Kept = 0 }, nil},
		"as many as may be":      {"a", 45, func(*consensus.State, map[plan.PeerID]*gossip.Heartbeat) {}, []plan.PeerID{"d", "b", "c"}},
		"too many steps":         {"a", 46, func(*consensus.State, map[plan.PeerID]*gossip.Heartbeat) {}, nil},
		"few long ones": {"a", 35, func(_ *consensus.State, b map[plan.PeerID]*gossip.Heartbeat) {
			for _, beat := range b {
				beat.StepNanos = 60 * second
			}
		}, []plan.PeerID{"d", "b", "c"}},
		"a much faster one": {"a", 37, func(s *consensus.State, _ map[plan.PeerID]*gossip.Heartbeat) {
			s.Owners = []plan.PeerID{"a", "b", "c", "d"} // who are believed
			for i, m := range s.Members {
				s.Members[i].Profile.Devices = []plan.DeviceProfile{{Name: "cpu", MatMulFLOPS: 1e9, MemoryBytesPerS: 1e9, MemoryFreeBytes: 1 << 30}}
				if m.Peer == "a" || m.Peer == "b" {
					s.Members[i].Profile.Devices[0].MatMulFLOPS = 3e9
				}
			}
		}, []plan.PeerID{"b"}},
		"a state that only one outside the plan has": {"a", 37, func(s *consensus.State, _ map[plan.PeerID]*gossip.Heartbeat) {
			s.Checkpoint.Layers[0].Holders = []plan.PeerID{"a", "e"}
		}, nil},
		"who had it in the memory of a process that has ended": {"a", 37, func(s *consensus.State, _ map[plan.PeerID]*gossip.Heartbeat) {
			s.Checkpoint.Layers[0].Unstored = []consensus.Process{{Peer: "d", ProcessEpoch: 9}}
		}, nil},
		"who has it in memory": {"a", 37, func(s *consensus.State, _ map[plan.PeerID]*gossip.Heartbeat) {
			s.Checkpoint.Layers[0].Unstored = []consensus.Process{{Peer: "d"}}
		}, []plan.PeerID{"d", "b", "c"}},
		"another one loads from it": {"a", 30, func(s *consensus.State, _ map[plan.PeerID]*gossip.Heartbeat) {
			s.Checkpoint.Layers[2].Holders = []plan.PeerID{"a"}
		}, nil},
		"another one loads from one outside the plan": {"a", 30, func(s *consensus.State, _ map[plan.PeerID]*gossip.Heartbeat) {
			s.Checkpoint.Layers[2].Holders = []plan.PeerID{"e"}
		}, []plan.PeerID{"d", "b", "c"}},
		"which is gone, too": {"a", 30, func(s *consensus.State, _ map[plan.PeerID]*gossip.Heartbeat) {
			s.Checkpoint.Layers[2].Holders = []plan.PeerID{"f"}
		}, nil},
		"which is silent": {"a", 30, func(s *consensus.State, _ map[plan.PeerID]*gossip.Heartbeat) {
			s.Checkpoint.Layers[2].Holders = []plan.PeerID{"g"}
		}, nil},
		"another one has loaded from it": {"a", 31, func(s *consensus.State, _ map[plan.PeerID]*gossip.Heartbeat) {
			s.Checkpoint.Layers[2].Holders = []plan.PeerID{"a"}
		}, []plan.PeerID{"d", "b", "c"}},
		"state in parts": {"a", 37, func(s *consensus.State, _ map[plan.PeerID]*gossip.Heartbeat) {
			s.Plan.Sharded = plan.LayerRanges{{First: 0, End: 1}}
		}, nil},
		"a newer checkpoint": {"a", 60, func(s *consensus.State, _ map[plan.PeerID]*gossip.Heartbeat) { s.Checkpoint.Step = 59 }, []plan.PeerID{"d", "b", "c"}},
		"an old word of it":  {"a", 20, func(*consensus.State, map[plan.PeerID]*gossip.Heartbeat) {}, []plan.PeerID{"d", "b", "c"}},
	} {
		p, beats := plan.Plan{Generation: 3, Start: 30, Replicas: []plan.Pipeline{{Micros: 2}}}, map[plan.PeerID]*gossip.Heartbeat{}
		state := consensus.State{Run: &plan.RunSpec{Train: plan.TrainSpec{Steps: 100}}, Checkpoint: consensus.Checkpoint{Step: 30}}
		members := []memberView{{Peer: "e", Active: true}, {Peer: "f", Active: true, Ended: true}, {Peer: "g", Active: true, Silent: DeadAfter + time.Second}}
		for i, peer := range []plan.PeerID{"a", "b", "c", "d"} {
			p.Replicas[0].Stages = append(p.Replicas[0].Stages, plan.Placement{Peer: peer, Device: "cpu", Holder: "b", Layers: plan.LayerRange{First: i, End: i + 1}})
			state.Members = append(state.Members, consensus.Member{Peer: peer, State: consensus.Active})
			state.Checkpoint.Layers = append(state.Checkpoint.Layers, consensus.LayerRef{Layer: i, SizeBytes: 1, Holders: []plan.PeerID{peer, "d"}})
			members = append(members, memberView{Peer: peer, Active: true, Ended: peer == c.lost})
			beats[peer] = &gossip.Heartbeat{Peer: peer, Generation: 3, Kept: 31, Step: c.newest, StepNanos: second}
		}
		state.Plan = p
		c.change(&state, beats)
		tracker := gossip.NewTracker()
		for _, b := range beats {
			tracker.Note(*b, time.Now())
		}
		got := (&salvageWatch{beats: tracker}).replayers(state, members, c.newest)
		if !slices.Equal(got[c.lost], c.want) || len(got) > 1 {
			t.Errorf("%s: %v could, want %v", name, got, c.want)
		}
	}
}
