package monitor

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// planned is a run of three nodes with measured links and a plan under a schedule.
func planned(t testing.TB, name string, micros int) consensus.State {
	t.Helper()
	run := plan.RunSpec{
		Run:   "watched",
		Model: model.Config{Vocab: 64, Context: 16, Blocks: 6, Heads: 1, Channels: 32},
		Train: plan.TrainSpec{
			Seed: 7, Steps: 25, Micros: micros, MicroBatch: 4, LR: 3e-3, MinLR: 3e-4, WarmupSteps: 2,
			Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, ClipNorm: 0.5, Replicas: 1, Stages: 3, Schedule: name,
		},
	}
	state := consensus.State{Run: &run}
	peers := []plan.PeerID{"a", "<b&\"'>", "c"}
	for i, peer := range peers {
		m := consensus.Member{Peer: peer, State: consensus.Active, Profile: plan.Profile{Devices: []plan.DeviceProfile{
			{Name: "cpu", Model: "slow", MatMulFLOPS: 3e8, MemoryBytesPerS: 25e8, MemoryFreeBytes: 1 << 30},
		}}}
		for _, other := range peers[i+1:] { // the way back is as the way there
			m.Profile.Links = append(m.Profile.Links, plan.LinkProfile{Peer: other, BytesPerS: 3_125_000, RTTNanos: 10e6, JitterNanos: 1e6})
		}
		state.Members = append(state.Members, m)
	}
	in := planner.Input{Run: run, Costs: run.Model.Costs(run.Train.MicroBatch, model.StorageF32), Generation: 1}
	for _, m := range state.Members {
		in.Members = append(in.Members, planner.Member{Peer: m.Peer, Profile: m.Profile})
	}
	plan, _, err := planner.Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	state.Plan = plan
	return state
}

func watcher() *Monitor {
	return &Monitor{Config: Config{Self: "a", Beats: gossip.NewTracker(), Log: slog.New(slog.DiscardHandler)}}
}

// drawAsSelf draws a view as the monitor's own page shows it.
func (m *Monitor) drawAsSelf(v planView, w io.Writer) error {
	return v.draw(w, func(at plan.WorkerID) string {
		name := plan.DeviceOf(string(at.Peer), at.Device)
		if at.Peer == m.Self {
			name += ", this node"
		}
		return name
	})
}

// classes counts the elements of a picture by class; it must be XML.
func classes(t *testing.T, svg []byte) (counts map[string]int, text string) {
	t.Helper()
	counts = map[string]int{}
	var all strings.Builder
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return counts, all.String()
		}
		if err != nil {
			t.Fatalf("%v\n%.2000s", err, svg)
		}
		switch e := token.(type) {
		case xml.CharData:
			all.Write(e)
		case xml.StartElement:
			for _, a := range e.Attr {
				if a.Name.Local == "class" {
					counts[a.Value]++
				}
			}
		}
	}
}

// TestThePictureIsThePlans: a row for each seat with its layers, a bar for each action, whatever
// the schedule, and names that would be markup are text.
func TestThePictureIsThePlans(t *testing.T) {
	for _, name := range []string{"1f1b", "zb-h1", "gpipe", "interleaved:v=2", "2bp", ""} {
		state, n := planned(t, name, 6), watcher()
		r, err := n.planView(state)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var svg bytes.Buffer
		if err := n.drawAsSelf(r, &svg); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		counts, text := classes(t, svg.Bytes())
		bars, want := 0, 0
		for class, n := range counts {
			if strings.HasPrefix(class, "bar ") {
				bars += n
			}
		}
		for _, spans := range r.line.Workers {
			for _, s := range spans {
				if s.End > s.Start {
					want++
				}
			}
		}
		if seats := state.Plan.Workers(); bars != want || want < 2*3*6 || counts["name"] != len(seats) {
			t.Errorf("%s: %d bars, want %d; %d names of %d seats", name, bars, want, counts["name"], len(seats))
		}
		for _, seat := range state.Plan.Workers() {
			who, mine := string(seat.Peer), ""
			if seat.Peer == n.Self {
				mine = ", this node"
			}
			row := who + " (cpu)" + mine + ", "
			switch stages := state.Plan.StagesOf(seat); {
			case len(stages) == 2:
				row += fmt.Sprintf("layers %d %d", state.Plan.At(stages[0]).Layers.First, state.Plan.At(stages[1]).Layers.First)
			case state.Plan.At(stages[0]).Layers.Len() == 1:
				row += fmt.Sprintf("layer %d", state.Plan.At(stages[0]).Layers.First)
			default:
				row += fmt.Sprintf("layers %d-%d", state.Plan.At(stages[0]).Layers.First, state.Plan.At(stages[0]).Layers.End-1)
			}
			if !strings.Contains(text, row) {
				t.Errorf("%s: no row %q in %q", name, row, text)
			}
		}
	}
}

// TestThePlanViewGoesByWhatIsSeen: times and links that heartbeats tell of take the place of the
// profiles', and the status has them.
func TestThePlanViewGoesByWhatIsSeen(t *testing.T) {
	state, n := planned(t, "1f1b", 6), watcher()
	before, err := n.planView(state)
	if err != nil {
		t.Fatal(err)
	}
	for i, seat := range state.Plan.Workers() {
		b := gossip.Heartbeat{Peer: seat.Peer, Generation: state.Plan.Generation, Step: 4, StepNanos: 900e6, Schedule: state.Plan.ScheduleChoice().String()}
		for _, h := range state.Plan.StagesOf(seat) {
			b.Stages = append(b.Stages, gossip.StageTimes{Replica: h.Replica, Stage: h.Stage, ForwardNanos: 120e6, BackwardNanos: 240e6, UpdateNanos: 1e6})
		}
		if i > 0 {
			b.Links = []gossip.LinkRate{{Peer: state.Plan.Workers()[i-1].Peer, BytesPerS: 250_000, RTTNanos: 40e6, Transport: plan.TCP, Reason: "UDP gets no answer"}}
		} else { // which was connected to, and does not know why over TCP
			b.Links = []gossip.LinkRate{{Peer: state.Plan.Workers()[1].Peer, BytesPerS: 250_000, RTTNanos: 40e6, Transport: plan.TCP}}
		}
		n.Beats.Note(b, before.until)
	}
	n.view.newest.until, n.view.newest.samples = time.Time{}, nil // as if long ago
	r, err := n.planView(state)
	if err != nil || r.step != 4 || r.line.Makespan <= before.line.Makespan {
		t.Fatalf("step %d takes %d after %d: %v", r.step, r.line.Makespan, before.line.Makespan, err)
	}
	for _, row := range r.line.Workers {
		for _, s := range row {
			if want := map[schedule.Op]schedule.Nanos{schedule.Forward: 20e6, schedule.Backward: 40e6}[s.Action.Op]; want > 0 && (s.End-s.Start < want-2 || s.End-s.Start > want) {
				t.Errorf("%v takes %d, want %d", s.Action, s.End-s.Start, want)
			}
		}
	}
	var s api.Status
	n.fillPlan(&s, state)
	if s.About == nil || s.About.StepMS != 900 || s.About.Layers != 8 || s.About.TokensPerStep != 6*4*16 || len(s.Seats) != 3 || len(s.Links) != 4 {
		t.Fatalf("%+v, %d seats, links %+v", s.About, len(s.Seats), s.Links)
	}
	params := int64(0)
	for _, seat := range s.Seats {
		params += seat.Parameters
		if seat.MemoryBytes <= 0 || seat.FreeBytes != 1<<30 || seat.BusyMS != 361 || seat.ExposedMS < 0 || seat.BusyMS+seat.ExposedMS > seat.StepMS {
			t.Errorf("%+v", seat)
		}
	}
	if tied := int64(state.Run.Model.TiedLen()); params != state.Run.Model.Params()+tied {
		t.Errorf("%d parameters on all seats, the model has %d and %d twice", params, state.Run.Model.Params(), tied)
	}
	for _, l := range s.Links {
		live := l.BytesPerS == 250_000 && l.RTTMS == 40 && l.Live
		b, _ := n.Beats.Last(l.From)
		if told := len(b.Links) > 0 && b.Links[0].Peer == l.To; told != (l.Transport == plan.TCP && l.Reason == "UDP gets no answer") {
			t.Errorf("%+v, told by its sender: %v", l, told)
		}
		if probed := l.BytesPerS == 3_125_000 && l.RTTMS == 10 && !l.Live; !live && !probed {
			t.Errorf("%+v", l)
		}
	}
}

// TestThePlanViewOutlivesADevice: the page shows the plan until the next one, though a profile lacks a device of it.
func TestThePlanViewOutlivesADevice(t *testing.T) {
	state, n := planned(t, "1f1b", 6), watcher()
	before, err := n.planView(state)
	if err != nil {
		t.Fatal(err)
	}
	state.Members = append([]consensus.Member(nil), state.Members...)
	state.Members[1].Profile.Devices = nil
	n.view.newest.until = time.Time{} // as if long ago
	after, err := n.planView(state)
	if err != nil || after.line.Makespan != before.line.Makespan || len(after.seats) != 3 || len(after.links) != 4 {
		t.Errorf("%d workers, %d links, makespan %d after %d: %v",
			len(after.seats), len(after.links), after.line.Makespan, before.line.Makespan, err)
	}
}

func TestNoPlanViewWithoutAPlan(t *testing.T) {
	n := watcher()
	if _, err := n.planView(consensus.State{}); !errors.Is(err, api.ErrNotReady) {
		t.Errorf("got %v", err)
	}
	var s api.Status
	n.fillPlan(&s, consensus.State{})
	if s.About != nil || s.Seats != nil {
		t.Errorf("got %+v", s)
	}
}

// TestLongStepsAreCut: of a step with many actions the picture shows the beginning, whole.
func TestLongStepsAreCut(t *testing.T) {
	r, err := watcher().planView(planned(t, "1f1b", 6))
	if err != nil {
		t.Fatal(err)
	}
	if whole := upTo(r.line, 10_000); whole.Makespan != r.line.Makespan {
		t.Error("a short step is cut")
	}
	const most = 20
	cut := upTo(r.line, most)
	n := 0
	for _, row := range cut.Workers {
		for _, s := range row {
			n++
			if s.End > cut.Makespan {
				t.Errorf("%v ends at %d of %d", s.Action, s.End, cut.Makespan)
			}
		}
	}
	if n == 0 || n > most || cut.Makespan >= r.line.Makespan {
		t.Errorf("%d actions up to %d of %d", n, cut.Makespan, r.line.Makespan)
	}
	for _, m := range cut.Messages {
		if m.Arrived > cut.Makespan {
			t.Errorf("a message comes at %d of %d", m.Arrived, cut.Makespan)
		}
	}
}

// BenchmarkPlanView measures a look at a plan, which a node pays at most once in leastShown.
func BenchmarkPlanView(b *testing.B) {
	for _, micros := range []int{6, 512} {
		b.Run(fmt.Sprintf("micros=%d", micros), func(b *testing.B) {
			state := planned(b, "1f1b", micros)
			for b.Loop() {
				n := watcher()
				r, err := n.planView(state)
				if err == nil {
					err = n.drawAsSelf(r, io.Discard)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestSeatsOfReplicasWithLocalSteps: each replica's time is that of its own inner steps, whose schedule its node names for itself.
func TestSeatsOfReplicasWithLocalSteps(t *testing.T) {
	state, m := planned(t, plan.ScheduleName, 3), watcher()
	p := plan.Plan{Generation: 1, Schedule: plan.ScheduleName, Local: &plan.Local{Rounds: plan.Rounds{Every: 10, Fragments: 1}, Codec: "int8"}}
	for r, member := range state.Members {
		p.Replicas = append(p.Replicas, plan.Pipeline{
			FirstMicro: plan.Micro(r), Micros: 1, Warmups: []int{0},
			Stages: []plan.Placement{{Peer: member.Peer, Device: "cpu", Layers: plan.LayerRange{End: state.Run.Model.Layers()}}},
		})
	}
	state.Plan = p
	for r, member := range state.Members {
		_, alone := plan.Alone(*state.Run, p, plan.Replica(r))
		m.Beats.Note(gossip.Heartbeat{
			Peer: member.Peer, Generation: 1, StepNanos: 100e6, Schedule: alone.ScheduleChoice().String(),
			Inner:  []gossip.InnerStep{{Replica: plan.Replica(r), Step: 3, Nanos: int64(r+1) * 40e6}},
			Stages: []gossip.StageTimes{{Replica: plan.Replica(r), ForwardNanos: int64(r+1) * 10e6, BackwardNanos: int64(r+1) * 20e6}},
		}, time.Now())
	}
	v, err := m.planView(state)
	if err != nil {
		t.Fatal(err)
	}
	for r, s := range v.seats {
		if n := float64(r + 1); s.StepMS != 40*n || s.BusyMS != 30*n {
			t.Errorf("replica %d is busy for %v of %v ms", r, s.BusyMS, s.StepMS)
		}
	}
	if len(v.seats) != 3 {
		t.Errorf("%d seats", len(v.seats))
	}
}
