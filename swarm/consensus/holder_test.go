package consensus

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/planner/holders"
	"pnode/planner/plan"
)

// TestHolder: whom the plan names keeps a stage's copies while it is there, and else one that the roster has.
func TestHolder(t *testing.T) {
	const a1, b1, b2, c1 = "/ip4/1.1.1.1/udp/1/quic-v1", "/ip4/1.1.1.2/udp/1/quic-v1", "/ip4/1.1.1.2/udp/2/quic-v1", "/ip4/1.1.1.3/udp/1/quic-v1"
	first := plan.StageID{}
	for _, c := range []struct {
		name   string
		change func(*State)
		want   plan.PeerID
	}{
		{"the plan's", func(*State) {}, "b"},
		{"the plan's, started again", func(s *State) { s.Members[1].State = Joining }, "b"},
		{"the plan's is gone", func(s *State) { s.Members[1].State = Gone }, "d"},
		{"the plan's leaves", func(s *State) { s.Members[1].State = Draining }, "d"},
		{"the plan names nobody", func(s *State) { s.Plan.Replicas[0].Stages[0].Holder = "" }, "d"},
		{"no member that leaves or joins takes its place", func(s *State) {
			s.Members[1].State, s.Members[3].State, s.Members[4].State = Gone, Draining, Joining
		}, "c"},
		{"copies do not get to the plan's", func(s *State) { s.CopyFailures = holders.Failures{{Peer: "a", Holder: "b"}} }, "d"},
		{"nor to the one that takes its place", func(s *State) {
			s.CopyFailures = holders.Failures{{Peer: "a", Holder: "b"}, {Peer: "a", Holder: "d"}}
		}, "e"},
		{"another's copies do not", func(s *State) { s.CopyFailures = holders.Failures{{Peer: "c", Holder: "b"}} }, "b"},
		{"they do not, to somebody else", func(s *State) { s.CopyFailures = holders.Failures{{Peer: "a", Holder: "d"}} }, "b"},
		{"those of who goes on in the place of the stage's do not", func(s *State) {
			s.Substitute, s.CopyFailures = &Substitute{Lost: "a", By: "c"}, holders.Failures{{Peer: "c", Holder: "b"}}
		}, "d"},
		{"they get to nobody", func(s *State) {
			s.Members, s.CopyFailures = s.Members[:2], holders.Failures{{Peer: "a", Holder: "b"}}
		}, "b"},
		{"nobody else is there", func(s *State) { s.Members = s.Members[:1] }, ""},
		{"who has copies already comes later", func(s *State) {
			s.Members[1].State, s.Plan.Replicas[0].Stages[1].Holder = Gone, "d"
		}, "e"},
		{"so does who has no room", func(s *State) {
			s.Members[1].State, s.Members[3].Profile.DiskFreeBytes = Gone, plan.DiskReserveBytes+10
		}, "e"},
		{"but not whom the room went for the copy", func(s *State) {
			s.Members[1].State, s.Members[3].Profile.DiskFreeBytes = Gone, plan.DiskReserveBytes+10
			s.Checkpoint.Layers[0].Holders = []plan.PeerID{"a", "d"}
		}, "d"},
		{"another network is better", func(s *State) {
			s.Members[1].State = Gone
			s.Members[0].Addrs, s.Members[3].Addrs, s.Members[4].Addrs = []string{b1}, []string{b2}, []string{c1}
		}, "e"},
		{"and another owner", func(s *State) {
			s.Members[1].State, s.Grants = Gone, []Grant{{Serial: 7, Peers: []plan.PeerID{"a", "d"}}, {Serial: 8, Peers: []plan.PeerID{"e"}}}
			s.Members[0].Addrs = []string{a1}
		}, "e"},
		{"not who keeps all layers anyway", func(s *State) {
			s.Members[1].State, s.Owners, s.Grants = Gone, []plan.PeerID{"d"}, []Grant{{Serial: 7, Peers: []plan.PeerID{"a", "b", "c", "e"}}}
		}, "e"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := held()
			c.change(&s)
			if got := s.Holder(first); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if got := held().Holder(plan.StageID{Stage: 2}); got != "" {
		t.Errorf("a stage that no plan has is with %q", got)
	}
}

// held is a state of five members, with stages of two layers on a and c. b keeps their copies.
func held() State {
	s := State{Run: &plan.RunSpec{}, Plan: plan.Plan{Generation: 3, Replicas: []plan.Pipeline{{Stages: []plan.Placement{
		{Peer: "a", Holder: "b", Layers: plan.LayerRange{End: 1}}, {Peer: "c", Holder: "b", Layers: plan.LayerRange{First: 1, End: 2}},
	}}}}}
	for _, p := range []plan.PeerID{"a", "b", "c", "d", "e"} {
		s.Members = append(s.Members, Member{Peer: p, State: Active})
	}
	for l := range 2 {
		s.Checkpoint.Layers = append(s.Checkpoint.Layers, LayerRef{Layer: l, SizeBytes: 20, Holders: []plan.PeerID{"a"}})
	}
	return s
}

// TestAStageIsReportedWithItsHolder: with the plan's, with the one in its place, and with no others.
func TestAStageIsReportedWithItsHolder(t *testing.T) {
	whole, lost := held(), held()
	lost.Members = slices.Clone(lost.Members)
	lost.Members[1].State = Gone
	for _, c := range []struct {
		state   State
		holders []plan.PeerID
		ok      bool
	}{
		{whole, []plan.PeerID{"a", "b"}, true},
		{whole, []plan.PeerID{"a", "d"}, false},
		{lost, []plan.PeerID{"a", "d"}, true},
		{lost, []plan.PeerID{"a", "b"}, true}, // it had the copy
		{lost, []plan.PeerID{"a", "e"}, false},
		{lost, []plan.PeerID{"a"}, true},
	} {
		saved := StageSaved{Step: 5, Generation: 3, Layers: []LayerRef{{Holders: c.holders}}}
		if err := Authorize(c.state, Author{Peer: "a"}, saved); (err == nil) != c.ok || errors.Is(err, ErrForbidden) {
			t.Errorf("%v: %v", c.holders, err) // holders come and go while a copy is made: that is no lie
		}
		if err := Authorize(c.state, Author{Peer: "c"}, saved); !errors.Is(err, ErrForbidden) {
			t.Errorf("%v, by who has no part in it: %v", c.holders, err)
		}
	}
}

// TestASuccessorKeepsTheCopies: whatever becomes of another stage's holder. Who has asked it for a copy, or the one before, may say so when the
// log has the next one.
func TestASuccessorKeepsTheCopies(t *testing.T) {
	s := held() // stages on a and c, both with b
	first, second := plan.StageID{}, plan.StageID{Stage: 1}
	for _, c := range []struct {
		entry   Entry
		holders string // of both stages
		reports string // whom c may name besides itself
	}{
		{CopyFailed{Peer: "c", Holder: "b"}, "bd", "bd"},
		{CopyFailed{Peer: "a", Holder: "b"}, "ed", "bd"},
		{CopyFailed{Peer: "a", Holder: "e"}, "dd", "bd"},
		{SetMemberState{Peer: "e", State: Gone}, "dd", "bd"},
		{CopyFailed{Peer: "c", Holder: "d"}, "da", "bda"},
		{Join{Peer: "c", ProcessEpoch: 1}, "db", "bda"},           // its copies are tried again
		{SetMemberState{Peer: "d", State: Draining}, "bb", "bda"}, // nobody else is left to a
	} {
		next, err := Apply(s, c.entry)
		if err != nil {
			t.Fatal(err)
		}
		if err := followsHolders(s, next); err != nil {
			t.Error(err)
		}
		s = next
		reports := ""
		for _, h := range by("abde") {
			saved := StageSaved{Step: 5, Generation: 3, Layers: []LayerRef{{Layer: 1, Holders: []plan.PeerID{"c", h}}}}
			if Authorize(s, Author{Peer: "c"}, saved) == nil {
				reports += string(h)
			}
		}
		if got := string(s.Holder(first) + s.Holder(second)); got != c.holders || !slices.Equal(by(reports), slices.Sorted(slices.Values(by(c.reports)))) {
			t.Errorf("%+v: %s keep the copies, and c may name %s; want %s and %s", c.entry, got, reports, c.holders, c.reports)
		}
	}
}

// TestASuccessorHasRoom: whose disk has no room left for the copies does not keep them, unless it has some already; nor is it noted for want of a
// better one.
func TestASuccessorHasRoom(t *testing.T) {
	tight := func(p plan.PeerID) Entry {
		return Update{Peer: p, Profile: plan.Profile{DiskFreeBytes: plan.DiskReserveBytes + 19}}
	}
	for want, entries := range map[plan.PeerID][]Entry{
		"d": {CopyFailed{Peer: "a", Holder: "b"}},
		"e": {CopyFailed{Peer: "a", Holder: "b"}, tight("d")},
		"c": {CopyFailed{Peer: "a", Holder: "b"}, tight("d"), tight("e")},
	} {
		s := held()
		for _, e := range entries {
			var err error
			if s, err = Apply(s, e); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.Holder(plan.StageID{}); got != want {
			t.Errorf("%+v: %q keeps the copies, want %q", entries, got, want)
		}
	}
	s, err := Apply(held(), CopyFailed{Peer: "a", Holder: "b"})
	if err != nil {
		t.Fatal(err)
	}
	s.Checkpoint.Layers = slices.Clone(s.Checkpoint.Layers)
	s.Checkpoint.Layers[0].Holders = by("ad")
	if s, err = Apply(s, tight("d")); err != nil || s.Holder(plan.StageID{}) != "d" {
		t.Errorf("%q keeps the copies in place of who has one (%v)", s.Holder(plan.StageID{}), err)
	}
}

// TestRandomSuccessors: members fail, leave, come back and are complained of at random, and no stage's copies move without need.
func TestRandomSuccessors(t *testing.T) {
	moved := 0
	eachSeed(t, func(seed uint64) error {
		r := rand.New(rand.NewPCG(seed, 0))
		s := held()
		s.Run.Train.Steps = 1_000_000
		for _, p := range by("fgh") {
			s = s.withMember(Member{Peer: p, State: Active})
		}
		s.Plan.Replicas[0].Stages = append(s.Plan.Replicas[0].Stages,
			plan.Placement{Peer: "d", Holder: "f", Layers: plan.LayerRange{First: 2, End: 3}}, plan.Placement{Peer: "e", Holder: "a", Layers: plan.LayerRange{First: 3, End: 4}})
		s.Run.Model.Blocks = 2
		for range 30 {
			at := plan.StageID{Stage: plan.Stage(r.IntN(4))}
			m := s.Members[r.IntN(len(s.Members))]
			var e Entry
			switch r.IntN(8) {
			case 0:
				e = SetMemberState{Peer: m.Peer, ProcessEpoch: m.ProcessEpoch, State: []MemberState{Active, Draining, Gone}[r.IntN(3)]}
			case 1:
				e = Join{Peer: m.Peer, ProcessEpoch: m.ProcessEpoch + r.Uint64N(2)}
			case 2:
				e = SetMemberState{Peer: m.Peer, ProcessEpoch: m.ProcessEpoch, State: Active}
			case 3:
				e = Update{Peer: m.Peer, ProcessEpoch: m.ProcessEpoch, Profile: plan.Profile{DiskFreeBytes: plan.DiskReserveBytes + r.Int64N(40)}}
			case 4:
				s.Departures.Clock.Millis += r.Int64N(5 * 60 * 1000)
				saved := StageSaved{Step: s.Checkpoint.Step + 1, Generation: 3}
				for l := range s.Run.Model.Layers() {
					saved.Layers = append(saved.Layers, LayerRef{Layer: l, SizeBytes: 20, Chunks: make([]plan.Hash, 1), Holders: by("a")})
				}
				e = saved
			default:
				e = CopyFailed{Peer: s.Plan.At(at).Peer, Holder: s.Holder(at)}
			}
			next, err := Apply(s, e)
			if wrong := followsHolders(s, next); wrong != nil {
				return fmt.Errorf("%+v: %w", e, wrong)
			}
			if twice, _ := Apply(next, e); err == nil && !equalStates(twice, next) {
				return fmt.Errorf("%+v: twice is not the same as once", e)
			}
			if next.Holder(at) != s.Holder(at) {
				moved++
			}
			s = next
		}
		return nil
	})
	if moved == 0 {
		t.Error("no copies have moved")
	}
}

// TestCopiesAreTriedAgain: a pair of members is forgotten with a checkpoint that is committed ten minutes later.
func TestCopiesAreTriedAgain(t *testing.T) {
	for millis, want := range map[int64]plan.PeerID{10*60*1000 + 6: "d", 10*60*1000 + 7: "b"} {
		s := held()
		s.Run.Model.Blocks, s.Run.Train.Steps = 0, 100
		s.Departures.Clock.Millis = 7
		s, err := Apply(s, CopyFailed{Peer: "a", Holder: "b"})
		if err != nil {
			t.Fatal(err)
		}
		s.Departures.Clock.Millis = millis
		saved := StageSaved{Step: 5, Generation: 3}
		for l := range 2 {
			saved.Layers = append(saved.Layers, LayerRef{Layer: l, SizeBytes: 20, Chunks: make([]plan.Hash, 1), Holders: by("a")})
		}
		if s, err = Apply(s, saved); err != nil || s.Checkpoint.Step != 5 {
			t.Fatal(err)
		}
		if got := s.Holder(plan.StageID{}); got != want {
			t.Errorf("after %d ms copies go to %s, want %s", millis, got, want)
		}
	}
}

// TestComplaintsAreBounded: a member that gets copies to nobody is not believed for ever, and the last holder stays.
func TestComplaintsAreBounded(t *testing.T) {
	s := held()
	for _, p := range by("fghijklmnop") {
		s = s.withMember(Member{Peer: p, State: Active})
	}
	taken, last := 0, plan.PeerID("")
	for range len(s.Members) {
		holder := s.Holder(plan.StageID{})
		next, err := Apply(s, CopyFailed{Peer: "a", Holder: holder})
		if err != nil {
			if last != "" && holder != last {
				t.Errorf("%s keeps the copies after %s", holder, last)
			}
			last = holder
			continue
		}
		taken++
		s = next
	}
	if taken != holders.MaxFailures || last == "" {
		t.Errorf("%d complaints were taken, want %d", taken, holders.MaxFailures)
	}
}

// TestGoneHoldersGiveUpTheirPlaces: to those that come where there are no more places, but for who computed the layer. A whole copy takes
// none from a living one.
func TestGoneHoldersGiveUpTheirPlaces(t *testing.T) {
	s := State{}
	for _, p := range by("abcdefghijkl") {
		s = s.withMember(Member{Peer: p, State: Active})
	}
	full := LayerRef{SizeBytes: 1, Holders: by("abcdefgh"), Whole: 1}
	for _, c := range []struct {
		gone, comes, want string
		whole             int
	}{
		{"", "i", "abcdefgi", 0},
		{"ac", "i", "abdefgih", 1},
		{"ach", "ij", "abdefgij", 0},
		{"bcdefgh", "ijkl", "aijkl", 0},
		{"", "a", "abcdefgh", 1},
	} {
		have := Checkpoint{Step: 5, Layers: []LayerRef{full}}
		merged, err := have.merge(s.without(by(c.gone)...), StageSaved{Layers: []LayerRef{{SizeBytes: 1, Holders: by(c.comes)}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := merged.Layers[0]; !slices.Equal(got.Holders, by(c.want)) || got.Whole != c.whole {
			t.Errorf("%q are gone and %q come: %v, %d of them with whole copies, want %q and %d", c.gone, c.comes, got.Holders, got.Whole, c.want, c.whole)
		}
	}
}
