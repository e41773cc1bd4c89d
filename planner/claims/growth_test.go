package claims_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner"
	"pnode/planner/claims"
	"pnode/planner/plan"
)

var update = flag.Bool("update", false, "rewrite what the scenarios print")

// world is a run whose members have other speeds than they claim. A scenario is a text of commands; what a command
// prints stands below it after "| ".
//
//	run layers=12 micros=24
//	owner NAME gflops=10, node NAME gflops=100 [true=10] [says=planned]
//	(what it claims, what it has, and whether its times are as planned, whatever it takes)
//	claim NAME gflops=80, true NAME gflops=5
//	leave NAME, join NAME
//	train steps=40
type world struct {
	in      planner.Input
	members []*member
	plan    plan.Plan
	step    int
	watch   claims.Watch
}

type member struct {
	claims.Claim
	flops int64 // that it has
	liar  bool  // says that it computes as planned
	away  bool
}

func TestGrowth(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal(len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var w world
			var out strings.Builder
			for line := range strings.Lines(string(want)) {
				if strings.HasPrefix(line, "|") {
					continue
				}
				out.WriteString(line)
				if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
					for _, printed := range w.do(t, words) {
						out.WriteString("| " + printed + "\n")
					}
				}
			}
			if *update {
				if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if out.String() != string(want) {
				t.Errorf("prints (rewrite with -update):\n%s", out.String())
			}
		})
	}
}

func (w *world) do(t *testing.T, words []string) (out []string) {
	name, set, says := "", map[string]int64{}, ""
	for _, word := range words[1:] {
		key, value, found := strings.Cut(word, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case !found:
			name = word
		case key == "says":
			says = value
		case err != nil:
			t.Fatal(err)
		default:
			set[key] = n
		}
	}
	i := slices.IndexFunc(w.members, func(m *member) bool { return m.Peer == plan.PeerID(name) })
	switch words[0] {
	case "run":
		w.in = planner.Input{Run: plan.RunSpec{Run: "grows", Train: plan.TrainSpec{Micros: int(set["micros"]), UnevenShares: true, Replicas: 1}}}
		for range set["layers"] {
			w.in.Costs = append(w.in.Costs, model.LayerCost{ForwardFLOPs: 1e9, InputFLOPs: 1e9, WeightFLOPs: 1e9, ParamBytes: 4e6, SavedBytes: 4e6, BoundaryBytes: 2e5})
		}
	case "owner", "node":
		m := &member{Claim: claims.Claim{Peer: plan.PeerID(name), Owner: words[0] == "owner", Profile: profile(set["gflops"] * 1e9)}, flops: set["gflops"] * 1e9, liar: says == "planned"}
		if set["true"] > 0 {
			m.flops = set["true"] * 1e9
		}
		w.members = append(w.members, m)
	case "claim":
		w.members[i].Profile = profile(set["gflops"] * 1e9)
	case "true":
		w.members[i].flops = set["gflops"] * 1e9
	case "leave", "join":
		w.members[i].away = words[0] == "leave"
		if w.plan.Generation > 0 && w.plan.Places(plan.PeerID(name)) {
			return []string{w.make(t)}
		}
	case "train":
		return w.train(t, int(set["steps"]))
	default:
		t.Fatalf("unknown command %q", words[0])
	}
	return nil
}

func profile(flops int64) plan.Profile {
	return plan.Profile{Devices: []plan.DeviceProfile{{Name: "cpu", MatMulFLOPS: flops, AttentionFLOPS: flops, MemoryBytesPerS: flops, MemoryFreeBytes: 8 << 30}}}
}

// counted returns what is counted on of those who are there.
func (w *world) counted() []claims.Counted {
	var all []claims.Claim
	for _, m := range w.members {
		if !m.away {
			all = append(all, m.Claim)
		}
	}
	return claims.Count(w.in.Run.Train.Storage, all)
}

// input returns the planner's with what is counted on, or with what members have.
func (w *world) input(truly bool) planner.Input {
	in := w.in
	in.Generation = w.plan.Generation + 1
	if w.plan.Generation > 0 {
		in.Previous = &w.plan
	}
	for _, c := range w.counted() {
		if truly {
			c.Profile = profile(w.member(c.Peer).flops)
		}
		in.Members = append(in.Members, planner.Member{Peer: c.Peer, Profile: c.Profile, Claim: c.Text()})
	}
	return in
}

func (w *world) member(p plan.PeerID) *member {
	return w.members[slices.IndexFunc(w.members, func(m *member) bool { return m.Peer == p })]
}

// make makes the next plan and says who has how many layers.
func (w *world) make(t *testing.T) string {
	p, _, err := planner.Make(context.Background(), w.input(false))
	if err != nil {
		t.Fatal(err)
	}
	w.plan = p
	expected, err := planner.Expect(w.input(true), p, planner.Measured{})
	if err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, c := range w.counted() {
		layers := 0
		for _, pipe := range p.Replicas {
			for _, s := range pipe.Stages {
				if s.Peer == c.Peer {
					layers += s.Layers.Len() * pipe.Micros
				}
			}
		}
		part := fmt.Sprintf("%s %d%%", c.Peer, (100*layers+50)/(len(w.in.Costs)*w.in.Run.Train.Micros))
		if !c.Whole() {
			part += fmt.Sprintf(" (counts with %d of %d GFLOP/s)", c.FLOPS/1e9, c.ClaimedFLOPS/1e9)
		}
		parts = append(parts, part)
	}
	return fmt.Sprintf("step %d: generation %d: %s; a step takes %d ms", w.step, p.Generation, strings.Join(parts, ", "), expected.StepNanos/1e6)
}

// train runs windows of 4 steps, and plans again where that is worth it.
func (w *world) train(t *testing.T, steps int) (out []string) {
	if w.plan.Generation == 0 {
		out = append(out, w.make(t))
	}
	for end := w.step + steps; ; {
		d, err := planner.ShouldReplan(context.Background(), w.input(false), w.plan)
		if err != nil {
			t.Fatal(err)
		}
		if d.Replan {
			out = append(out, w.make(t))
		}
		if w.step >= end {
			return out
		}
		w.step += 4
		for _, v := range w.watch.Note(w.window(t)) {
			m := w.member(v.Peer)
			m.Shown, _ = m.Shown.After(w.plan.Generation, v.FLOPS, v.Held)
			word := "holds"
			if !v.Held {
				word = "does not hold"
			}
			out = append(out, fmt.Sprintf("step %d: %s %s, has shown %d GFLOP/s", w.step, v.Peer, word, v.FLOPS/1e9))
		}
	}
}

// window returns what the leader sees of four steps.
func (w *world) window(t *testing.T) claims.Window {
	measured := planner.Measured{}
	for _, truly := range []bool{false, true} {
		timing, err := planner.Timing(w.input(truly), w.plan, planner.Measured{})
		if err != nil {
			t.Fatal(err)
		}
		for r, pipe := range w.plan.Replicas {
			for s, place := range pipe.Stages {
				if w.member(place.Peer).liar == truly {
					continue
				}
				each, n := timing.Replicas[r].Stages[s], int64(pipe.Micros)
				measured.Stages = append(measured.Stages, planner.MeasuredStage{
					Replica: plan.Replica(r), Stage: plan.Stage(s), ForwardNanos: int64(each.Forward) * n, BackwardNanos: int64(each.Input+each.Weight+each.Recompute) * n, UpdateNanos: int64(each.Update),
				})
			}
		}
	}
	happens, err := planner.Expect(w.input(true), w.plan, planner.Measured{})
	if err != nil {
		t.Fatal(err)
	}
	expected, err := planner.Expect(w.input(false), w.plan, measured)
	if err != nil {
		t.Fatal(err)
	}
	out := claims.Window{Generation: w.plan.Generation, PredictedNanos: expected.StepNanos, ExplainedNanos: expected.ExplainedNanos}
	for _, c := range w.counted() {
		if !w.plan.Places(c.Peer) {
			continue
		}
		step := happens.StepNanos
		if w.member(c.Peer).liar {
			step = expected.StepNanos
		}
		out.Members = append(out.Members, claims.Work{Counted: c, PlannedNanos: expected.PlannedNanos[c.Peer], ReportedNanos: expected.ReportedNanos[c.Peer], StepNanos: step})
	}
	return out
}
