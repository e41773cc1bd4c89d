package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/schedule/draw"
	"pnode/planner"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

var update = flag.Bool("update", false, "write the golden texts anew")

// made is a plan of two replicas, with devices that recompute, hold two chunks, and have nothing to do.
func made() planner.Details {
	lan := cost.Link{BytesPerS: 125e6, RTTNanos: 2e6}
	stage := func(replica, stage, first, end, inFlight int) planner.StageDetails {
		return planner.StageDetails{
			At: plan.StageID{Replica: plan.Replica(replica), Stage: plan.Stage(stage)}, Layers: plan.LayerRange{First: first, End: end},
			Micros: 8, Micro: 12_340_000, InFlight: inFlight,
		}
	}
	sends := func(s planner.StageDetails, codec plan.Codec) planner.StageDetails {
		s.Sends, s.Link, s.Codec = true, lan, codec
		return s
	}
	device := func(node, kind string, need int64, stages ...planner.StageDetails) planner.DeviceDetails {
		return planner.DeviceDetails{
			Worker: plan.WorkerID{Peer: plan.PeerID(node), Device: "cuda:0"}, Node: node, Profile: plan.DeviceProfile{Model: kind},
			NeedBytes: need, TotalBytes: 8 << 30, Busy: 90e6, Choices: []string{"in bf16: halves were not measured"}, Stages: stages,
		}
	}
	recomputes := sends(stage(0, 0, 0, 6, 3), plan.CodecInt8)
	recomputes.Recomputes = true
	d := planner.Details{
		Plan: plan.Plan{Schedule: "1f1b"}, Replicas: 2, Stages: 2, Step: 150e6, Passes: 130e6, Unlinked: 115e6, Exchange: 12e6, Commit: 3e6, Update: 5e6,
		Bound: "bound by computing: replica 0 stage 0 on ada takes 12.34 ms a micro-batch, which is a sentence that is too long for one line of the text",
		All:   9, SumGroups: 8,
		Devices: []planner.DeviceDetails{
			device("ada", "RTX 4070", 7<<30, recomputes),
			device("bob", "a card whose name does not end anywhere soon", 300<<20, stage(0, 1, 6, 14, 1)),
			device("node-10", "RTX 4070", 7<<30, sends(stage(1, 0, 0, 3, 2), plan.CodecF32), stage(1, 2, 7, 9, 2)),
			device("node-2", "", 1<<30, sends(stage(1, 1, 3, 7, 1), plan.CodecF32), stage(1, 3, 9, 14, 1)),
		},
		Others: []planner.Other{{Shape: "1 replica of 4 stages", Devices: 4, Step: 151e6}, {Shape: "1 replica of 2 stages", Devices: 2, Step: 180e6}, {Shape: "4 replicas of 1 stage", Devices: 4, Step: 900e6}},
		Reasons: plan.Reasons{
			{Kind: plan.ReasonStepTime, Text: "told elsewhere"},
			{Kind: plan.ReasonLeftOut, Text: "told elsewhere"},
			{Kind: plan.ReasonHolder, Text: "checkpoints with copies every 212 s (260 steps) or so, more often where nodes are lost often: a long line"},
		},
	}
	for _, node := range []string{"node-9", "node-11", "node-12", "node-7"} {
		d.Unused = append(d.Unused, planner.Unused{Name: node + " cuda:0", Node: node, Model: "T4", With: 165e6, In: "1 replica of 5 stages"})
	}
	d.Unused = append(d.Unused, planner.Unused{Name: "old", Node: "old", Why: "it is leaving"}, planner.Unused{Name: "eve cpu", Node: "eve", Model: "cpu"})
	return d
}

// many is a plan of so many devices of three kinds in replicas of four stages, and half as many that are left out.
func many(n int) planner.Details {
	d := made()
	d.Devices, d.Unused, d.Replicas, d.Stages, d.All = nil, nil, n/4, 4, n+n/2
	cards := []string{"RTX 4090", "RTX 3060", "T4"}
	for i := range n {
		s := planner.StageDetails{
			At: plan.StageID{Replica: plan.Replica(i / 4), Stage: plan.Stage(i % 4)}, Layers: plan.LayerRange{First: i % 4, End: i%4 + 1 + i%3}, Micros: 8 + i%2, Micro: schedule.Nanos(12e6 + 1e4*(i%311)),
		}
		if i%4 < 3 {
			s.Sends, s.Link, s.Codec = true, cost.Link{BytesPerS: 125e6 - 1e5*int64(i%400), RTTNanos: 1e6 * int64(1+i%40)}, plan.CodecInt8
		}
		s.Recomputes = i%5 == 2
		d.Devices = append(d.Devices, planner.DeviceDetails{
			Worker: plan.WorkerID{Peer: plan.PeerID(fmt.Sprint("p", i)), Device: "cuda:0"}, Node: fmt.Sprint("node-", i), Profile: plan.DeviceProfile{Model: cards[i%3]},
			NeedBytes: int64(2<<30 + i%700<<20), TotalBytes: int64(12+4*(i%2)) << 30 >> (i % 3 / 2), Busy: 90e6, Stages: []planner.StageDetails{s}, Choices: []string{fmt.Sprint("a choice of kind ", i%20)},
		})
	}
	for i := range n / 2 {
		u := planner.Unused{Name: fmt.Sprintf("spare-%d cuda:0", i), Node: fmt.Sprint("spare-", i), Model: cards[i%3], With: schedule.Nanos(152e6 + 1e6*(i%50))}
		if i%9 == 0 {
			u.Why, u.With = "it is leaving", 0
		}
		d.Unused = append(d.Unused, u)
	}
	return d
}

// TestBriefIsTextOfFew, and the text of many has a line for each.
func TestBriefIsTextOfFew(t *testing.T) {
	for _, n := range []int{16, 1000} {
		r := New("nano", planner.Input{Run: run(t)}, many(n))
		var brief, all bytes.Buffer
		if err := errors.Join(r.Brief(&brief), r.Text(&all)); err != nil {
			t.Fatal(err)
		}
		lines := bytes.Count(brief.Bytes(), []byte("\n"))
		if n == 16 && !bytes.Equal(brief.Bytes(), all.Bytes()) || n > 16 && lines > 70 || bytes.Count(all.Bytes(), []byte("\n")) < n {
			t.Errorf("%d devices have %d lines, and in full\n%s", n, lines, all.String())
		}
	}
}

// run is a run of 8 micro-batches.
func run(t *testing.T) plan.RunSpec {
	t.Helper()
	m, err := model.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	return plan.RunSpec{Run: "r", Model: m, Train: plan.TrainSpec{Steps: 60_000, Micros: 8, MicroBatch: 4}}
}

// TestTextIsGolden compares texts with those in testdata; -update writes these anew.
func TestTextIsGolden(t *testing.T) {
	full := New("nano", planner.Input{Run: run(t)}, made())
	full.Tried = 6
	full.Variants = []Variant{
		{Flags: "--micro-batch 1 --micros 32", TokensPerS: 30_000, Factor: 1.07, Devices: 6, BatchFactor: 1},
		{Flags: "--micros 64 --codec int8", TokensPerS: 123_456, Factor: 2.14, Devices: 8, BatchFactor: 8, Lossy: true},
	}
	idle := full
	idle.Variants, idle.Next, idle.Notes = nil, nil, nil
	alone := made()
	alone.Devices, alone.Replicas, alone.Stages, alone.All, alone.Unused, alone.Others = alone.Devices[:1], 1, 1, 1, nil, nil
	small := New("nano", planner.Input{Run: run(t)}, alone)
	together := made()
	together.Plan.Local = &plan.Local{Rounds: plan.Rounds{Every: 30, Fragments: 1}, Codec: "int8"}
	together.Reasons = plan.Reasons{{Kind: plan.ReasonRounds, Text: "replicas take 30 steps on their own"}}
	local := New("nano", planner.Input{Run: run(t)}, together)
	local.Variants = []Variant{{Flags: "--sync every-step", TokensPerS: 27_000, Factor: 0.98, Devices: 4, BatchFactor: 1}}
	full.Variants = append(full.Variants, Variant{Flags: "--sync local", TokensPerS: 52_000, Factor: 1.92, Devices: 8, BatchFactor: 1, Lossy: true, Every: 30})
	for name, r := range map[string]Report{"full": full, "idle": idle, "local": local, "alone": small, "many": New("nano", planner.Input{Run: run(t)}, many(1000), "sums are in 125 groups")} {
		var b bytes.Buffer
		if err := r.Brief(&b); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name+".txt")
		if *update {
			if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || b.String() != string(want) {
			t.Errorf("%s: %v\n%s", name, err, b.String())
		}
		wide := 104
		if name == "many" { // the groups have ranges
			wide = 140
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(line); n > wide || strings.TrimRight(line, " \n")+"\n" != line {
				t.Errorf("%s: a line of %d letters: %q", name, n, line)
			}
		}
	}
}

// TestJSONHasStableNames of the fields that docs/planning.md lists, and what they hold.
func TestJSONHasStableNames(t *testing.T) {
	d := made()
	d.Plan.Local = &plan.Local{Rounds: plan.Rounds{Every: 30}}
	r := New("nano", planner.Input{Run: run(t)}, d)
	r.Variants = []Variant{{Flags: "--sync local", Every: 30}}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "planning.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := fields(got)
	if len(names) < 40 {
		t.Errorf("%d names: %v", len(names), names)
	}
	for _, name := range names {
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/planning.md does not say what %s is", name)
		}
	}
	spent := r.Spent
	if sum := spent.Computing + spent.Bubble + spent.Exposed + spent.Update; sum != 1000 || spent.Exposed != 200 || spent.Computing != 600 || spent.Update != 33 {
		t.Errorf("a step is spent as %+v", spent)
	}
	if want := int64(8 * 4 * r.Context); r.StepTokens != want || int64(r.TokensPerS*0.15+0.5) != want || r.EndNanos != 60_000*150e6 {
		t.Errorf("%d tokens in a step of 150 ms, %g a second, the end after %d ns", r.StepTokens, r.TokensPerS, r.EndNanos)
	}
}

// fields lists the names of an object and of the objects in it, the first of lists.
func fields(of map[string]any) (names []string) {
	for name, value := range of {
		names = append(names, name)
		if list, ok := value.([]any); ok && len(list) > 0 {
			value = list[0]
		}
		if inner, ok := value.(map[string]any); ok {
			names = append(names, fields(inner)...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ of, want string }{
		{"b a", "a, b"},
		{"node-2", "node-2"},
		{"node-10 node-9", "node-9, node-10"},
		{"node-3 node-1 node-2 node-5", "node-1 to node-3, node-5"},
		{"x-1 y-2 y-3 y-4", "x-1, y-2 to y-4"},
		{"a1 a3 a2 a", "a, a1 to a3"},
		{"n-99999999999999999999 n", "n, n-99999999999999999999"},
	} {
		if got := names(strings.Fields(c.of)); got != c.want {
			t.Errorf("%s: %q, want %q", c.of, got, c.want)
		}
	}
}

// TestSVGHasARowForEachDevice, of a plan that the planner made. A step with too many actions is refused.
func TestSVGHasARowForEachDevice(t *testing.T) {
	spec := run(t)
	spec.Run, spec.Train.Stages, spec.Train.Replicas = "svg", 2, 1
	in := planner.InputOf(spec)
	for _, name := range []string{"ada", "bob"} {
		in.Members = append(in.Members, planner.Member{Peer: plan.PeerID(name), Profile: plan.Profile{Devices: []plan.DeviceProfile{{
			Name: "cpu", Model: "model of " + name, MatMulFLOPS: 1e10, AttentionFLOPS: 1e10, MemoryBytesPerS: 1e10, MemoryFreeBytes: 1 << 40,
		}}}})
	}
	d, err := planner.MakeWithDetails(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	r := New("nano", in, d)
	var b bytes.Buffer
	if err := r.SVG(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "model of ada", "model of bob", "1 replica of 2 stages"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
	r.Micros = draw.MaxSpans
	if err := r.SVG(&b); !errors.Is(err, draw.ErrTooLarge) {
		t.Error(err)
	}
}
