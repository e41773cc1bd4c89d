package grace

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/consensus/rounds"
)

// shares returns a run and a local plan of replicas with so many micro-batches, in rounds of 10 steps.
func shares(micros ...int) (plan.RunSpec, plan.Plan) {
	p, next := plan.Plan{Generation: 3, Local: &plan.Local{Rounds: plan.Rounds{Every: 10, Fragments: 1}}}, 0
	for _, n := range micros {
		p.Replicas = append(p.Replicas, plan.Pipeline{FirstMicro: plan.Micro(next), Micros: n})
		next += n
	}
	return plan.RunSpec{Train: plan.TrainSpec{Micros: next, Steps: 100}}, p
}

// member tells when a replica does what, in seconds; a negative time is never.
type member struct {
	hands  int // it has done its steps, and its messages come to the others
	closes int // how long after a close it does
	unable int
	apart  bool // no messages get from it to any other one, nor to it
}

// play has a round go on in virtual time, and returns what the leader does, by the second, and how the round ends. The run pauses at a time, unless that is
// negative; others are words that somebody says all the time.
func play(t *testing.T, micros []int, members []member, ending int, others ...gossip.HandedIn) string {
	run, p := shares(micros...)
	r, w, closedAt := *rounds.First(run, p), &Watch{}, -1
	if ending >= 0 {
		closedAt = ending
	}
	began := time.Unix(0, 0)
	var log []string
	for s := range 10000 {
		handed := func(q int) bool {
			m := members[q]
			dead := m.unable >= 0 && s >= m.unable && (m.hands < 0 || m.hands >= m.unable)
			return !dead && (m.hands >= 0 && s >= m.hands || closedAt >= 0 && s >= closedAt && m.closes >= 0 && s >= closedAt+m.closes)
		}
		unable, said := map[plan.Replica]string{}, append([]gossip.HandedIn(nil), others...)
		for q, m := range members {
			if m.unable >= 0 && s >= m.unable {
				unable[plan.Replica(q)] = "its process has ended"
				continue
			}
			parts := make([]plan.Part, len(members))
			for other := range members {
				if handed(other) && (other == q || !m.apart && !members[other].apart) {
					parts[other] = plan.Part{Steps: 10, Sum: plan.Hash{byte(other)}}
				}
			}
			if !handed(q) {
				continue
			}
			word := gossip.HandedIn{Generation: p.Generation, Replica: plan.Replica(q), Steps: 10}
			for other, part := range parts {
				if part.Steps == 0 {
					word.Lacks = append(word.Lacks, plan.Replica(other))
				}
			}
			said = append(said, word)
			if next, err := r.Gather(plan.Gathered{From: r.From, Replica: plan.Replica(q), Parts: parts}); err == nil {
				r = next
			}
		}
		if ending >= 0 && s >= ending {
			r = r.Close() // as the log does
		}
		if m, ok := r.Merge(run, p, ending >= 0 && s >= ending); ok {
			return strings.Join(append(log, fmt.Sprintf("%d merged %v", s, m.Counted())), ", ")
		}
		e, lost := w.Next(View{Now: began.Add(time.Duration(s) * time.Second), Plan: p, Round: r, Unable: unable, Said: said, Takes: 200 * time.Second, Exchange: 10 * time.Second, Patience: 10 * time.Minute})
		if lost {
			return strings.Join(append(log, fmt.Sprintf("%d lost", s)), ", ")
		}
		switch e := e.(type) {
		case consensus.CloseRound:
			log, closedAt, r = append(log, fmt.Sprintf("%d closes", s)), s, r.Close()
		case consensus.LeaveOut:
			next, err := r.LeaveOut(p, rounds.LeftOut{Replica: e.Replica, Reason: e.Reason})
			if err != nil {
				t.Fatal(err)
			}
			log, r = append(log, fmt.Sprintf("%d without %d", s, e.Replica)), next
		}
	}
	return strings.Join(append(log, "waits"), ", ")
}

func TestRoundsEnd(t *testing.T) {
	const never = -1
	well, dead := member{hands: 200, closes: 1, unable: never}, member{never, never, never, false}
	for _, c := range []struct {
		name    string
		micros  []int
		members []member
		want    string
	}{
		{"nobody comes", []int{2, 2}, []member{dead, dead}, "1040 closes, 1081 without 1, 1681 lost"},
		{"the larger one never comes", []int{2, 3}, []member{well, {never, never, never, false}}, "220 closes, 861 lost"},
		{"all", []int{2, 2}, []member{well, well}, "200 merged [0 1]"},
		{"a bit later", []int{2, 2}, []member{well, {219, 1, never, false}}, "219 merged [0 1]"},
		{"slow", []int{2, 2}, []member{well, {900, 30, never, false}}, "220 closes, 250 merged [0 1]"},
		{"too slow", []int{2, 2}, []member{well, {900, 300, never, false}}, "220 closes, 261 without 1, 262 merged [0]"},
		{"the larger one is too slow", []int{2, 3}, []member{well, {900, 300, never, false}}, "220 closes, 520 merged [0 1]"},
		{"dead", []int{2, 2}, []member{well, {never, never, 50, false}}, "50 without 1, 200 merged [0]"},
		{"dead after its messages came", []int{2, 2}, []member{{210, 1, never, false}, {200, 1, 205, false}}, "205 without 1, 210 merged [0 1]"},
		{"the larger one dies", []int{2, 3}, []member{well, {never, never, 50, false}}, "50 lost"},
		{"two of three die", []int{2, 2, 2}, []member{well, {never, never, 50, false}, {never, never, 60, false}}, "50 without 1, 60 lost"},
		{"they do not reach each other", []int{2, 2}, []member{{200, 1, never, true}, {200, 1, never, true}}, "220 closes, 261 without 1, 262 merged [0]"},
		{"nor one of three the rest", []int{2, 2, 2}, []member{well, {200, 1, never, true}, well}, "220 closes, 261 without 1, 262 merged [0 2]"},
	} {
		if got := play(t, c.micros, c.members, never); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestWordsOfOthers end nothing: those of another round or plan, of a replica that nobody waits for or that there is not, nor those that cannot be true.
func TestWordsOfOthers(t *testing.T) {
	const never = -1
	slow := member{hands: 900, closes: 30, unable: never}
	for _, c := range []struct {
		name string
		said gossip.HandedIn
		want string
	}{
		{"of this round", gossip.HandedIn{Generation: 3, Replica: 1, Steps: 10}, "120 closes, 150 merged [0 1]"}, // once it may be true
		{"of the round before", gossip.HandedIn{Generation: 3, From: 20, Replica: 1, Steps: 10}, "900 merged [0 1]"},
		{"of the plan before", gossip.HandedIn{Generation: 2, Replica: 1, Steps: 10}, "900 merged [0 1]"},
		{"of none of the plan", gossip.HandedIn{Generation: 3, Replica: 2, Steps: 10}, "900 merged [0 1]"},
		{"of fewer steps", gossip.HandedIn{Generation: 3, Replica: 1, Steps: 9}, "900 merged [0 1]"},
		{"of more steps", gossip.HandedIn{Generation: 3, Replica: 1, Steps: 11}, "900 merged [0 1]"},
	} {
		if got := play(t, []int{2, 2}, []member{slow, slow}, never, c.said); got != c.want {
			t.Errorf("a word %s: %s, want %s", c.name, got, c.want)
		}
	}
	// Of who is left out.
	if got, want := play(t, []int{2, 2, 2}, []member{slow, slow, {never, never, 10, false}}, never, gossip.HandedIn{Generation: 3, Replica: 2, Steps: 10}), "10 without 2, 900 merged [0 1]"; got != want {
		t.Errorf("a word of who is left out: %s, want %s", got, want)
	}
	// That the other lacks who is left out.
	if got, want := play(t, []int{2, 2, 2}, []member{{900, 30, never, false}, slow, {never, never, 10, false}}, never, gossip.HandedIn{Generation: 3, Replica: 0, Steps: 10, Lacks: []plan.Replica{2}}), "10 without 2, 120 closes, 150 merged [0 1]"; got != want {
		t.Errorf("a word on who is left out: %s, want %s", got, want)
	}
}

// TestWhoHasAllIsAskedOnceMore: when one replica is left out at the end of the grace, the others that lacked its messages alone have time to say what they have.
func TestWhoHasAllIsAskedOnceMore(t *testing.T) {
	run, p := shares(4, 2, 2)
	r := rounds.First(run, p).Close()
	said := []gossip.HandedIn{{Generation: 3, Replica: 0, Steps: 10, Lacks: []plan.Replica{2}}, {Generation: 3, Replica: 1, Steps: 10, Lacks: []plan.Replica{2}}}
	var w Watch
	var got []string
	for s := range 100 {
		e, _ := w.Next(View{Now: time.Unix(int64(s), 0), Plan: p, Round: r, Said: said, Exchange: 10 * time.Second})
		if out, ok := e.(consensus.LeaveOut); ok {
			got = append(got, fmt.Sprintf("%d without %d", s, out.Replica))
			next, err := r.LeaveOut(p, rounds.LeftOut{Replica: out.Replica, Reason: out.Reason})
			if err != nil {
				t.Fatal(err)
			}
			r = next
		}
		if s == 28 { // one of them says so
			next, err := r.Gather(plan.Gathered{From: r.From, Replica: 0, Parts: []plan.Part{{Steps: 10}, {Steps: 10}, {}}})
			if err != nil {
				t.Fatal(err)
			}
			r = next
		}
	}
	if want := []string{"25 without 2", "31 without 1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestWhoReachesFewIsLeftOut, and not those that lack its messages, though it has theirs and the log has its word. By the word of one alone it is that one.
func TestWhoReachesFewIsLeftOut(t *testing.T) {
	run, p := shares(3, 2, 2, 2)
	whole := plan.Part{Steps: 10}
	for name, c := range map[string]struct {
		lack []plan.Replica // what replica 2 has sent
		want plan.Replica
	}{"nobody": {[]plan.Replica{0, 1, 3}, 2}, "one of three": {[]plan.Replica{0, 3}, 2}, "all but one of them": {[]plan.Replica{0}, 0}} {
		r := rounds.First(run, p).Close()
		said := []gossip.HandedIn{}
		for q := range plan.Replica(4) {
			word := gossip.HandedIn{Generation: 3, Replica: q, Steps: 10}
			if slices.Contains(c.lack, q) {
				word.Lacks = []plan.Replica{2}
			} else {
				next, err := r.Gather(plan.Gathered{Replica: q, Parts: []plan.Part{whole, whole, whole, whole}})
				if err != nil {
					t.Fatal(err)
				}
				r = next
			}
			said = append(said, word)
		}
		var w Watch
		e, s := consensus.Entry(nil), 0
		for ; e == nil && s < 100; s++ {
			e, _ = w.Next(View{Now: time.Unix(int64(s), 0), Plan: p, Round: r, Said: said, Exchange: 10 * time.Second})
		}
		if out, ok := e.(consensus.LeaveOut); !ok || out.Replica != c.want || s != 26 {
			t.Errorf("it reaches %s: %+v after %d s", name, e, s)
		}
	}
}

// TestTwoLiarsLeaveOutNoHonestReplica, though both say that they lack messages of one after the other, each of which has all others'.
func TestTwoLiarsLeaveOutNoHonestReplica(t *testing.T) {
	for name, micros := range map[string][]int{"equal": {2, 2, 2, 2, 2, 2, 2, 2}, "larger": {3, 3, 3, 3, 3, 3, 5, 5}} {
		run, p := shares(micros...)
		r := rounds.First(run, p).Close()
		parts := slices.Repeat([]plan.Part{{Steps: 10}}, len(micros))
		for q := range plan.Replica(6) {
			next, err := r.Gather(plan.Gathered{Replica: q, Parts: parts})
			if err != nil {
				t.Fatal(err)
			}
			r = next
		}
		var w Watch
		var out []plan.Replica
		for s := 0; len(r.Missing()) > 0 && s < 1000; s++ {
			var said []gossip.HandedIn
			for q := range plan.Replica(8) {
				word := gossip.HandedIn{Generation: 3, Replica: q, Steps: 10}
				if q >= 6 {
					word.Lacks = r.Awaited()[:1]
				}
				said = append(said, word)
			}
			e, lost := w.Next(View{Now: time.Unix(int64(s), 0), Plan: p, Round: r, Said: said, Exchange: 10 * time.Second})
			if lost {
				t.Fatalf("%s: the round is lost, without %v", name, out)
			}
			if e, ok := e.(consensus.LeaveOut); ok {
				next, err := r.LeaveOut(p, rounds.LeftOut{Replica: e.Replica, Reason: e.Reason})
				if err != nil {
					t.Fatal(err)
				}
				out, r = append(out, e.Replica), next
			}
		}
		if want := []plan.Replica{7, 6}; !slices.Equal(out, want) {
			t.Errorf("%s: left out %v, want %v", name, out, want)
		}
	}
}

// TestAPauseClosesARound without a word of the leader: who does not come then is left out as soon as after a close.
func TestAPauseClosesARound(t *testing.T) {
	const never = -1
	well := member{hands: 200, closes: 1, unable: never}
	for _, c := range []struct {
		members []member
		want    string
	}{
		{[]member{well, {900, 30, never, false}}, "80 merged [0 1]"},
		{[]member{well, {900, never, never, false}}, "90 without 1, 91 merged [0]"},
	} {
		if got := play(t, []int{2, 2}, c.members, 50); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// TestAPauseWhileMessagesTravel: nobody ends a round before it has made the outer step of the one before, so who has not is not late yet.
func TestAPauseWhileMessagesTravel(t *testing.T) {
	run, p := shares(2, 2)
	p.Local.Delay = 8
	for paused, want := range map[int]int{5: 160 + 25, 159: 160 + 25, 170: 170 + 25} {
		var w Watch
		r, at := *rounds.First(run, p), 0
		for e := consensus.Entry(nil); e == nil && at < 1000; at++ {
			if at >= paused {
				r = r.Close()
			}
			e, _ = w.Next(View{Now: time.Unix(int64(at), 0), Plan: p, Round: r, Takes: 200 * time.Second, Exchange: 2500 * time.Millisecond, Overlap: 160 * time.Second})
		}
		if at--; at != want {
			t.Errorf("a pause after %d s: a replica is left out after %d s, want %d", paused, at, want)
		}
	}
}

// TestWordsAfterMessagesHaveTravelled count once they may be true: little of a round may be left then.
func TestWordsAfterMessagesHaveTravelled(t *testing.T) {
	run, p := shares(2, 2)
	said := []gossip.HandedIn{{Generation: 3, Replica: 1, Steps: 10, Lacks: []plan.Replica{0}}}
	for overlap, want := range map[int]int{0: 100 + 20, 100: 50 + 20, 160: 20 + 20} {
		var w Watch
		at := 0
		for e := consensus.Entry(nil); e == nil && at < 1000; at++ {
			e, _ = w.Next(View{Now: time.Unix(int64(at), 0), Plan: p, Round: *rounds.First(run, p), Said: said, Takes: 200 * time.Second, Overlap: time.Duration(overlap) * time.Second})
		}
		if at--; at != want {
			t.Errorf("messages travelled for %d s: the round is closed after %d s, want %d", overlap, at, want)
		}
	}
}

// TestDisputesWithoutAQuorum lose the round at once.
func TestDisputesWithoutAQuorum(t *testing.T) {
	run, p := shares(2, 2, 2)
	r := *rounds.First(run, p)
	for q := range 3 {
		parts := slices.Repeat([]plan.Part{{Steps: 10, Sum: plan.Hash{byte(q)}}}, 3)
		next, err := r.Gather(plan.Gathered{Replica: plan.Replica(q), Parts: parts})
		if err != nil {
			t.Fatal(err)
		}
		r = next
	}
	if e, lost := new(Watch).Next(View{Plan: p, Round: r}); e != nil || !lost {
		t.Errorf("%v, lost: %t", e, lost)
	}
}

// TestAnotherRoundBeginsAnew with its graces.
func TestAnotherRoundBeginsAnew(t *testing.T) {
	run, p := shares(2, 2)
	r := *rounds.First(run, p)
	r, err := r.Gather(plan.Gathered{Replica: 0, Parts: slices.Repeat([]plan.Part{{Steps: 10}}, 2)})
	if err != nil {
		t.Fatal(err)
	}
	var w Watch
	at := func(s int) View { return View{Now: time.Unix(int64(s), 0), Plan: p, Round: r, Takes: time.Minute} }
	if e, _ := w.Next(at(0)); e != nil {
		t.Errorf("at once: %v", e)
	}
	r.From = 10
	if e, _ := w.Next(at(6)); e != nil {
		t.Errorf("the next round: %v", e)
	}
	if e, _ := w.Next(at(12)); e != (consensus.CloseRound{Generation: 3, From: 10}) {
		t.Errorf("6 s later: %v", e)
	}
}
