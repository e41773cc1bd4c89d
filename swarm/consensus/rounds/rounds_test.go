package rounds

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pnode/planner/plan"
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

// parts reads what a replica has of each: "a9 b10 -" are 9 steps of messages a, 10 of messages b, and nothing.
func parts(text string) (all []plan.Part) {
	for _, word := range strings.Fields(text) {
		part := plan.Part{}
		if word != "-" {
			part.Sum[0] = word[0]
			fmt.Sscan(word[1:], &part.Steps)
		}
		all = append(all, part)
	}
	return all
}

// TestMerges compares what comes of what replicas say, by who is left out before.
func TestMerges(t *testing.T) {
	for _, c := range []struct {
		name   string
		micros []int
		out    []plan.Replica
		has    []string // by replica; empty: it says nothing
		want   string   // step, counted, disputed, given back; "" while it is not merged
	}{
		{"all", []int{2, 2}, nil, []string{"a10 b10", "a10 b10"}, "10: [0 1] [] {[] 0}"},
		{"one is awaited", []int{2, 2}, nil, []string{"a10 b10", ""}, ""},
		{"slow", []int{2, 2}, nil, []string{"a7 b9", "a7 b9"}, "9: [0 1] [] {[{14 20}] 38}"},
		{"both slow", []int{2, 2}, nil, []string{"a7 b7", "a7 b7"}, "7: [0 1] [] {[{14 20}] 34}"},
		{"left out", []int{2, 2}, []plan.Replica{1}, []string{"a10 -", ""}, "10: [0] [] {[] 20}"},
		{"the first is left out", []int{2, 2}, []plan.Replica{0}, []string{"", "- b10"}, "10: [1] [] {[{0 20}] 40}"},
		{"dead, and its messages came", []int{2, 2}, []plan.Replica{1}, []string{"a10 b9", ""}, "10: [0 1] [] {[] 38}"},
		{"dead, and its messages came to one of two", []int{2, 2, 2}, []plan.Replica{1}, []string{"a10 b10 c10", "", "a10 - c10"}, "10: [0 2] [] {[{20 40}] 60}"},
		{"dead, and said before what came", []int{2, 2, 2}, []plan.Replica{1}, []string{"a10 b10 c10", "a10 b10 c10", "a10 b10 c10"}, "10: [0 1 2] [] {[] 0}"},
		{"two of two in a dispute", []int{2, 2}, nil, []string{"a10 b10", "x10 b10"}, "10: [0] [1] {[] 20}"},
		{"the larger one goes on", []int{1, 3}, nil, []string{"a10 b10", "x10 b10"}, "10: [1] [0] {[{0 10}] 40}"},
		{"one says something else of all", []int{2, 2, 2}, nil, []string{"a10 x10 y10", "a10 b10 c10", "a10 b10 c10"}, "10: [1 2] [0] {[{0 20}] 60}"},
		{"one sends to each something else", []int{2, 2, 2}, nil, []string{"a10 x10 c10", "a10 b10 c10", "a10 y10 c10"}, "10: [0 2] [1] {[{20 40}] 60}"},
		{"other steps", []int{2, 2, 2}, nil, []string{"a10 b10 c10", "a10 b10 c10", "a10 b9 c10"}, "10: [0 1] [2] {[] 40}"},
		{"disputes without a quorum", []int{2, 2, 2}, nil, []string{"a10 x10 y10", "p10 b10 q10", "r10 s10 c10"}, ""},
	} {
		run, p := shares(c.micros...)
		r := First(run, p).Close() // so that replicas may have done less
		say := func(late bool) {
			for q, has := range c.has {
				if has == "" || strings.Contains(has, "-") != late {
					continue
				}
				next, err := r.Gather(plan.Gathered{From: 0, Replica: plan.Replica(q), Parts: parts(has)})
				if err != nil {
					t.Fatalf("%s: replica %d: %v", c.name, q, err)
				}
				if again, err := next.Gather(plan.Gathered{From: 0, Replica: plan.Replica(q), Parts: parts(has)}); err != nil || !slices.Equal(again.Gathered[q], next.Gathered[q]) {
					t.Fatalf("%s: replica %d says it twice: %v", c.name, q, err)
				}
				r = next
			}
		}
		say(false)
		for _, out := range c.out {
			next, err := r.LeaveOut(p, LeftOut{out, "gone"})
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			r = next
		}
		say(true) // those that lack messages of who is left out
		got := ""
		if m, ok := r.Merge(run, p, false); ok {
			got = fmt.Sprint(m.To, ": ", m.Counted(), " ", m.Disputed, " ", m.Stream)
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestLateMerges: a plan whose rounds overlap ends where a counted replica has made fewer steps than another, which has begun the next round on samples that
// are not left to it.
func TestLateMerges(t *testing.T) {
	for name, c := range map[string]struct {
		delay plan.Step
		has   string
		last  bool
	}{
		"all":                   {3, "a10 b10", false},
		"one falls short":       {3, "a7 b10", true},
		"nobody has gone on":    {3, "a7 b9", false},
		"rounds do not overlap": {0, "a7 b10", false},
	} {
		run, p := shares(2, 2)
		p.Local.Delay = c.delay
		r := *First(run, p)
		r.Gathered = [][]plan.Part{parts(c.has), parts(c.has)}
		if m, ok := r.Merge(run, p, false); !ok || m.Last != c.last {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

func TestRefusals(t *testing.T) {
	run, p := shares(2, 2, 2)
	r := First(run, p).Close()
	for _, c := range []struct {
		g    plan.Gathered
		want error
		says string
	}{
		{plan.Gathered{From: 10, Parts: parts("a1 b1 c1")}, ErrStale, "step 10"},
		{plan.Gathered{Replica: 3, Parts: parts("a1 b1 c1")}, ErrRefused, "replica 3"},
		{plan.Gathered{Replica: -1, Parts: parts("a1 b1 c1")}, ErrRefused, "replica -1"},
		{plan.Gathered{Parts: parts("a1 b1")}, ErrRefused, "parts of 2"},
		{plan.Gathered{Parts: parts("a1 b1 c1 d1")}, ErrRefused, "parts of 4"},
		{plan.Gathered{Parts: parts("a1 b1 c1"), Seals: make([]plan.Hash, 2)}, ErrRefused, "seals of 2"},
		{plan.Gathered{Parts: parts("a11 b1 c1")}, ErrRefused, "11 inner steps"},
		{plan.Gathered{Parts: parts("a1 b18446744073709551615 c1")}, ErrRefused, "inner steps"},
		{plan.Gathered{Parts: parts("a1 b0 c1")}, ErrRefused, "no inner step"},
		{plan.Gathered{Parts: parts("a1 - c1")}, ErrStale, "replica 1, which is awaited"},
		{plan.Gathered{Parts: parts("- b1 c1")}, ErrStale, "replica 0, which is awaited"},
	} {
		if _, err := r.Gather(c.g); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c.g, err)
		}
	}
	r, err := r.Gather(plan.Gathered{Replica: 1, Parts: parts("a1 b1 c1"), Due: true})
	if err != nil || r.Due {
		t.Errorf("a checkpoint is due by the word of replica 1: %t (%v)", r.Due, err)
	}
	if _, err := r.Gather(plan.Gathered{Replica: 1, Parts: parts("a1 b1 c2")}); !errors.Is(err, ErrRefused) {
		t.Errorf("another word of the same replica: %v", err)
	}
	if r, err = r.LeaveOut(p, LeftOut{2, "gone"}); err != nil {
		t.Fatal(err)
	}
	if again, err := r.LeaveOut(p, LeftOut{2, "gone again"}); err != nil || len(again.LeftOut) != 1 {
		t.Errorf("left out twice: %+v (%v)", again.LeftOut, err)
	}
	if _, err := r.Gather(plan.Gathered{Replica: 2, Parts: parts("a1 b1 c1")}); !errors.Is(err, ErrStale) {
		t.Errorf("the word of one that is left out: %v", err)
	}
	for _, out := range []plan.Replica{0, 1} {
		if _, err := r.LeaveOut(p, LeftOut{out, "gone"}); !errors.Is(err, ErrRefused) {
			t.Errorf("one of three goes on: %v", err)
		}
	}
	for _, out := range []plan.Replica{-1, 3} {
		if _, err := r.LeaveOut(p, LeftOut{out, "gone"}); !errors.Is(err, ErrRefused) {
			t.Errorf("replica %d is left out: %v", out, err)
		}
	}
}

// TestWhoEndsARoundEarly is not believed before it is closed, nor after where another one had its messages by then. That one's word closes it.
func TestWhoEndsARoundEarly(t *testing.T) {
	run, p := shares(2, 2, 2)
	open := *First(run, p)
	out, err := open.LeaveOut(p, LeftOut{1, "gone"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		r       Round
		words   []string // by and what it has
		refused int      // of these
		hasty   string
	}{
		"nobody":                        {open, []string{"0 a10 b10 c10", "1 a10 b10 c10"}, 0, ""},
		"one says so itself":            {open, []string{"1 a10 b7 c10"}, 1, ""},
		"another has its messages":      {open, []string{"0 a10 b7 c10", "1 a10 b7 c10"}, 1, "0 has 7 of 1"},
		"one makes it up":               {open, []string{"0 a10 x7 c10", "1 a10 b10 c10"}, 0, "0 has 7 of 1"},
		"of who ends it once closed":    {open, []string{"0 a10 x7 c10", "1 a10 b7 c10"}, 0, "0 has 7 of 1"},
		"two do":                        {open, []string{"0 a10 b7 c5", "1 a10 b7 c5", "2 a10 b7 c5"}, 2, "0 has 7 of 1, 0 has 5 of 2"},
		"it is closed":                  {open.Close(), []string{"0 a10 b7 c10", "1 a10 b7 c10"}, 0, ""},
		"who is left out":               {out, []string{"0 a10 b7 c10"}, 0, ""},
		"both, who are not left out do": {out, []string{"0 a9 b7 c10"}, 1, ""},
	} {
		r, refused := c.r, 0
		for _, word := range c.words {
			q, has, _ := strings.Cut(word, " ")
			next, err := r.Gather(plan.Gathered{Replica: plan.Replica(q[0] - '0'), Parts: parts(has)})
			if errors.Is(err, ErrRefused) {
				refused++
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			r = next
		}
		hasty := []string{}
		for _, h := range r.Hasty {
			hasty = append(hasty, fmt.Sprintf("%d has %d of %d", h.By, h.Has.Steps, h.Of))
		}
		if got := strings.Join(hasty, ", "); refused != c.refused || got != c.hasty {
			t.Errorf("%s: %d words are refused, %q", name, refused, got)
		}
		if r.Closed != (c.r.Closed || len(r.Hasty) > 0) {
			t.Errorf("%s: closed: %t", name, r.Closed)
		}
		if err := Validate(run, p, &r, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWhoIsSaidToEndARoundEarlyIsBelieved unless the word that says so had its seal: another one can compute what it sends once that word has closed the round.
func TestWhoIsSaidToEndARoundEarlyIsBelieved(t *testing.T) {
	run, p := shares(2, 2)
	seal := plan.Hash{7}
	for name, c := range map[string]struct {
		had, own []plan.Hash
		refused  bool
	}{
		"its seal": {[]plan.Hash{{}, seal}, []plan.Hash{{}, seal}, true},
		"another":  {[]plan.Hash{{}, {8}}, []plan.Hash{{}, seal}, false},
		"none":     {nil, []plan.Hash{{}, seal}, false},
	} {
		r, err := First(run, p).Gather(plan.Gathered{Replica: 0, Parts: parts("a10 b7"), Seals: c.had})
		if err != nil || len(r.Hasty) != 1 || r.Hasty[0].Seal != (plan.Gathered{Seals: c.had}).Seal(1) {
			t.Fatalf("%s: %+v, %v", name, r.Hasty, err)
		}
		if r, err = r.Gather(plan.Gathered{Replica: 1, Parts: parts("a10 b7"), Seals: c.own}); errors.Is(err, ErrRefused) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
		if m, ok := r.Merge(run, p, false); ok == c.refused || ok && (!m.Last || !slices.Equal(m.Counted(), []plan.Replica{0, 1}) || !slices.Equal(m.Contradictions, r.Hasty)) {
			t.Errorf("%s: %t, %+v", name, ok, m)
		}
	}
}

// TestWhoEndsARoundEarlyIsToldOfAfterIt, with what others contradict each other on: the hearing may take longer than the round.
func TestWhoEndsARoundEarlyIsToldOfAfterIt(t *testing.T) {
	run, p := shares(2, 2, 2)
	hasty := plan.Contradiction{By: 0, Of: 1, Has: parts("a10 x7 c10")[1]}
	for name, c := range map[string]struct {
		words []string
		want  []plan.Contradiction
	}{
		"it is left out":       {[]string{"a10 x7 c10", "", "a10 x7 c10"}, []plan.Contradiction{hasty}},
		"its word is another":  {[]string{"a10 x7 c10", "a10 b10 c10", "a10 x7 c10"}, []plan.Contradiction{hasty, {By: 0, Of: 1, Has: hasty.Has, Sent: parts("b10")[0]}, {By: 2, Of: 1, Has: hasty.Has, Sent: parts("b10")[0]}}},
		"nobody ends it early": {[]string{"a10 b10 c10", "a10 b10 c10", "a10 b10 c10"}, nil},
	} {
		r := *First(run, p)
		for q, has := range c.words {
			next, err := r.LeaveOut(p, LeftOut{plan.Replica(q), "late"})
			if has != "" {
				next, err = r.Gather(plan.Gathered{Replica: plan.Replica(q), Parts: parts(has)})
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			r = next
		}
		m, ok := r.Merge(run, p, false)
		if !ok || !slices.Equal(m.Contradictions, c.want) || m.Last != (len(c.want) > 0) {
			t.Errorf("%s: %t, %+v, want %+v", name, ok, m, c.want)
		}
		if err := Validate(run, p, nil, &m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRoundsFollowEachOther up to the last step, with the same ends wherever plans start and rounds are closed.
func TestRoundsFollowEachOther(t *testing.T) {
	run, p := shares(2, 2)
	run.Train.Steps, p.Start = 35, 4
	var got []string
	steps := "a6 b6,a3 b2,a7 b7,a10 b10,a5 b5"
	r := First(run, p)
	for said := range strings.SplitSeq(steps, ",") {
		if said == "a3 b2" {
			closed := r.Close()
			r = &closed
		}
		for q := range p.Replicas {
			next, err := r.Gather(plan.Gathered{From: r.From, Replica: plan.Replica(q), Parts: parts(said), Due: said == "a3 b2"})
			if err != nil {
				t.Fatal(err)
			}
			r = &next
		}
		m, ok := r.Merge(run, p, false)
		if !ok {
			t.Fatalf("%s is not merged", said)
		}
		got = append(got, fmt.Sprint(m.From, "-", m.To, " of ", r.End, m.Save, m.Last, m.Stream))
		r = After(run, p, m)
	}
	want := []string{
		"4-10 of 10 false false {[] 0}",
		"10-13 of 20 true false {[{46 60}] 64}",
		"13-20 of 20 false false {[] 78}",
		"20-30 of 30 false false {[] 118}",
		"30-35 of 35 true true {[] 138}",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r != nil {
		t.Errorf("another round after the last step: %+v", r)
	}
	every := p
	every.Local = nil
	if First(run, every) != nil {
		t.Error("a plan that sums gradients in every step has rounds")
	}
}

// TestContradictionsAreKept of who was taken out, with whom and which way.
func TestContradictionsAreKept(t *testing.T) {
	run := plan.RunSpec{Train: plan.TrainSpec{Micros: 4, Steps: 100}}
	p := plan.Plan{Generation: 1, Local: &plan.Local{Rounds: plan.Rounds{Every: 4, Fragments: 1}}}
	for q, micros := range []int{2, 1, 1} {
		p.Replicas = append(p.Replicas, plan.Pipeline{FirstMicro: plan.Micro(q + min(q, 1)), Micros: micros})
	}
	r := *First(run, p)
	for q := range p.Replicas {
		g := plan.Gathered{Generation: 1, Replica: plan.Replica(q), Parts: []plan.Part{{Steps: 4, Sum: plan.Hash{1}}, {Steps: 4, Sum: plan.Hash{2}}, {Steps: 4, Sum: plan.Hash{3}}}}
		if q == 0 { // who has half of the micro-batches and lies of both others
			g.Parts[1].Sum[0], g.Parts[2].Sum[0] = 9, 9
		}
		if r.Contradictions(p) != nil {
			t.Fatal("contradictions before all have said what they have")
		}
		var err error
		if r, err = r.Gather(g); err != nil {
			t.Fatal(err)
		}
	}
	m, ok := r.Merge(run, p, false)
	of := func(q plan.Replica) plan.Contradiction {
		return plan.Contradiction{By: 0, Of: q, Has: plan.Part{Steps: 4, Sum: plan.Hash{9}}, Sent: plan.Part{Steps: 4, Sum: plan.Hash{byte(q) + 1}}}
	}
	want := []plan.Contradiction{of(1), of(2)}
	if !ok || !slices.Equal(m.Disputed, []plan.Replica{0}) || !slices.Equal(m.Contradictions, want) || !slices.Equal(r.Contradictions(p), want) {
		t.Fatalf("%t, %+v", ok, m)
	}
	if err := Validate(run, p, nil, &m); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*plan.Contradiction){
		"of a replica that there is not": func(c *plan.Contradiction) { c.By = 3 },
		"of more steps than a round has": func(c *plan.Contradiction) { c.Sent.Steps = 5 },
	} {
		m.Contradictions = slices.Clone(want)
		if change(&m.Contradictions[0]); Validate(run, p, nil, &m) == nil {
			t.Errorf("a contradiction %s", name)
		}
	}
}
