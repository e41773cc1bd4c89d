package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/plan"
)

// Report is a plan in figures. The names of the JSON fields are stable.
type Report struct {
	// Model names the preset, or the folder of the first weights.
	Model string `json:"model"`
	// Replicas of Stages run Schedule on Used of All devices.
	Replicas int    `json:"replicas"`
	Stages   int    `json:"stages"`
	Schedule string `json:"schedule"`
	Used     int    `json:"devices_used"`
	All      int    `json:"devices_all"`
	// Every counts the steps after which replicas with local steps meet; 0 for those that come together in each.
	Every int64 `json:"every,omitempty"`
	// StepNanos is the predicted time of a step of StepTokens: Micros micro-batches of MicroBatch sequences of Context
	// tokens.
	StepNanos  int64   `json:"step_ns"`
	StepTokens int64   `json:"step_tokens"`
	TokensPerS float64 `json:"tokens_per_s"`
	Micros     int     `json:"micros"`
	MicroBatch int     `json:"micro_batch"`
	Context    int     `json:"context"`
	// EndNanos has the time of all Steps of the run, if no node is lost.
	Steps    int64 `json:"steps"`
	EndNanos int64 `json:"end_ns"`
	Spent    Spent `json:"spent"`
	// Bound says what the step spends its time on.
	Bound   string    `json:"bound"`
	Devices []Device  `json:"devices"`
	LeftOut []LeftOut `json:"left_out,omitempty"`
	// Variants are other settings under which more devices are used, or the same ones better, of Tried ones.
	Variants []Variant `json:"variants,omitempty"`
	Tried    int       `json:"variants_tried"`
	Next     []Next    `json:"next,omitempty"`
	// Notes have the reasons that no figure stands for.
	Notes []string `json:"notes,omitempty"`

	in    planner.Input
	plan  plan.Plan
	notes []note
}

// Spent parts the time of a step, of all devices with a stage, in thousandths. They add up to 1000.
type Spent struct {
	// Computing is the devices' mean.
	Computing int64 `json:"computing_permille"`
	// Bubble counts the waits that there would be even if messages took no time: while the pipeline fills and drains, and for
	// slower ones.
	Bubble int64 `json:"bubble_permille"`
	// Exposed is by how much messages, reductions and the commit lengthen the step.
	Exposed int64 `json:"exposed_permille"`
	// Update is the optimizer's.
	Update int64 `json:"update_permille"`
}

// Device is a device with stages.
type Device struct {
	Replicas []int  `json:"replicas"`
	Node     string `json:"node"`
	Device   string `json:"device"`
	Model    string `json:"model,omitempty"`
	// Title is what people call it: its product, and which one of the node's where there are several.
	Title string `json:"title"`
	// Layers are ranges from a layer to one after the last.
	Layers []plan.LayerRange `json:"layers"`
	// NeedBytes of TotalBytes are taken.
	NeedBytes  int64 `json:"need_bytes"`
	TotalBytes int64 `json:"total_bytes"`
	// MicroNanos is the computing for a micro-batch, of which a step has Micros.
	MicroNanos int64 `json:"micro_ns"`
	Micros     int   `json:"micros"`
	// InFlight counts by stage the micro-batches whose activations it keeps at most.
	InFlight   []int `json:"in_flight"`
	Recomputes bool  `json:"recomputes"`
	// Codec, BytesPerS and RTTNanos are those of the link on which the first stage sends to another node; empty and 0
	// where none does.
	Codec     string `json:"codec,omitempty"`
	BytesPerS int64  `json:"link_bytes_per_s,omitempty"`
	RTTNanos  int64  `json:"link_rtt_ns,omitempty"`

	product string // without which one of the node's it is
	choices []string
}

// LeftOut are equal devices without a stage, for the same reason.
type LeftOut struct {
	Nodes []string `json:"nodes"`
	Model string   `json:"model,omitempty"`
	// WithNanos is the shortest step that uses one of them, 0 where the search saw none.
	WithNanos int64  `json:"with_ns,omitempty"`
	Why       string `json:"why"`
}

// Next is a plan of another kind that was not taken.
type Next struct {
	Shape     string `json:"shape"`
	Devices   int    `json:"devices"`
	StepNanos int64  `json:"step_ns"`
}

// mostNext bounds the other plans of a report, nextPercent how much longer their steps may be.
const (
	mostNext    = 2
	nextPercent = 25
)

// New returns the report of a plan that was made of an input, with more notes, without variants.
func New(model string, in planner.Input, d planner.Details, more ...string) Report {
	t := in.Run.Train
	r := Report{
		Model: model, Replicas: d.Replicas, Stages: d.Stages, Schedule: d.Plan.Schedule, Used: len(d.Devices), All: d.All,
		StepNanos: int64(d.Step), StepTokens: tokens(in.Run), TokensPerS: tokensPerS(in.Run, d.Step),
		Micros: t.Micros, MicroBatch: t.MicroBatch, Context: in.Run.Model.Context,
		Steps: int64(t.Steps), EndNanos: int64(t.Steps) * int64(d.Step), Spent: spent(d), Bound: strings.TrimPrefix(d.Bound, "bound by "),
		in: in, plan: d.Plan,
	}
	for _, device := range d.Devices {
		r.Devices = append(r.Devices, row(device))
	}
	if d.Plan.Local != nil {
		r.Every = int64(d.Plan.Local.Every)
	}
	r.LeftOut = leftOut(d)
	for _, o := range d.Others {
		if len(r.Next) < mostNext && (o.Step-d.Step)*100 <= d.Step*nextPercent {
			r.Next = append(r.Next, Next{o.Shape, o.Devices, int64(o.Step)})
		}
	}
	r.notes = notes(d)
	for _, text := range more {
		r.notes = append(r.notes, note{text: text})
	}
	for _, n := range r.notes {
		r.Notes = append(r.Notes, n.say(names(n.nodes)))
	}
	return r
}

// AfterWarmup says which plan a run with local steps has once its warm-up is over; empty for runs without one. plan makes it.
func AfterWarmup(ctx context.Context, run plan.RunSpec, make Planner) (string, error) {
	end := run.Train.Sync.WarmupEnd(run.Train.Steps)
	if end == 0 {
		return "", nil
	}
	run.Train.Sync.Warmup, run.Train.Sync.WarmupPercent = 0, 0
	d, err := make(ctx, run)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("the first %s add gradients in each, to warm up; then the plan has %s of %s with %s tokens/s",
		plan.Count(int(end), "step"), plan.Count(d.Replicas, "replica"), plan.Count(d.Stages, "stage"), rate(tokensPerS(run, d.Step)))
	if l := d.Plan.Local; l != nil {
		text += fmt.Sprintf(", which meet every %s and send %s", plan.Count(int(l.Every), "step"), l.Codec)
	}
	return text, nil
}

// tokens returns how many of them a step of a run trains on.
func tokens(run plan.RunSpec) int64 {
	return int64(run.Train.Micros) * int64(run.Train.MicroBatch) * int64(run.Model.Context)
}

func tokensPerS(run plan.RunSpec, step schedule.Nanos) float64 {
	return float64(tokens(run)) * 1e9 / float64(max(step, 1))
}

// spent parts a step's time.
func spent(d planner.Details) Spent {
	var busy schedule.Nanos
	for _, device := range d.Devices {
		busy += device.Busy / schedule.Nanos(len(d.Devices))
	}
	permille := func(t schedule.Nanos) int64 { return (int64(t)*1000 + int64(d.Step)/2) / max(int64(d.Step), 1) }
	out := Spent{Computing: permille(busy), Exposed: permille(d.Passes - d.Unlinked + d.Exchange + d.Commit), Update: permille(d.Update)}
	if out.Bubble = 1000 - out.Computing - out.Exposed - out.Update; out.Bubble < 0 { // by rounding
		out.Computing, out.Bubble = out.Computing+out.Bubble, 0
	}
	return out
}

// row returns the row of a device.
func row(d planner.DeviceDetails) Device {
	out := Device{
		Node: d.Node, Device: d.Worker.Device, Model: d.Profile.Model, Title: d.Title, product: cmp.Or(d.Profile.Product(), d.Worker.Device), NeedBytes: d.NeedBytes, TotalBytes: d.TotalBytes, choices: d.Choices,
	}
	for _, s := range d.Stages {
		if r := int(s.At.Replica); !slices.Contains(out.Replicas, r) {
			out.Replicas = append(out.Replicas, r)
			out.Micros += s.Micros
		}
		if !slices.Contains(out.Layers, s.Layers) {
			out.Layers = append(out.Layers, s.Layers)
			out.MicroNanos += int64(s.Micro)
		}
		out.InFlight = append(out.InFlight, s.InFlight)
		out.Recomputes = out.Recomputes || s.Recomputes
		if s.Sends && out.Codec == "" {
			out.Codec, out.BytesPerS, out.RTTNanos = s.Codec.String(), s.Link.BytesPerS, s.Link.RTTNanos
		}
	}
	return out
}

// leftOut joins devices of one model that have nothing to do for one reason. Each of like devices would do: the shortest step with
// one of them counts, though the search has seen it with that one alone.
func leftOut(d planner.Details) (out []LeftOut) {
	type group struct{ model, why string }
	groups := map[group]int{}
	for _, u := range d.Unused {
		key := group{u.Model, u.Why}
		at, ok := groups[key]
		if !ok {
			at = len(out)
			groups[key] = at
			out = append(out, LeftOut{Model: u.Model, Why: u.Why})
		}
		out[at].Nodes = append(out[at].Nodes, u.Node)
		if with := int64(u.With); u.Why == "" && with != 0 && (out[at].WithNanos == 0 || with < out[at].WithNanos) {
			out[at].WithNanos = with
		}
	}
	for i := range out {
		slices.SortFunc(out[i].Nodes, byNumber)
		out[i].Why = cmp.Or(out[i].Why, whyIdle(schedule.Nanos(out[i].WithNanos), d.Step, len(out[i].Nodes)))
		if (schedule.Nanos(out[i].WithNanos)-d.Step)*1000 < d.Step && out[i].WithNanos != 0 {
			out[i].WithNanos = int64(d.Step)
		}
	}
	slices.SortStableFunc(out, func(a, b LeftOut) int { return byNumber(a.Nodes[0], b.Nodes[0]) })
	return out
}

// whyIdle says why so many like devices have nothing to do, where the shortest step with one of them takes as long as with, or none
// comes close: 0.
func whyIdle(with, step schedule.Nanos, nodes int) string {
	them := "it"
	if nodes > 1 {
		them = "one"
	}
	switch {
	case with == 0:
		return "no plan with " + them + " comes close"
	case (with-step)*1000 < step:
		return "a step with " + them + " is no shorter"
	}
	return "a step with " + them + " takes " + plan.Time(with) + " at best, " + slower(with, step)
}

// slower says by how much a step is longer than another one.
func slower(a, b schedule.Nanos) string {
	return plan.Permille(int64(a-b)*1000/int64(max(b, 1))) + " longer"
}

// byNumber compares names with numbers at their ends: node-2 before node-10.
func byNumber(a, b string) int {
	nameA, a1 := numbered(a)
	nameB, b1 := numbered(b)
	return cmp.Or(strings.Compare(nameA, nameB), cmp.Compare(a1, b1), strings.Compare(a, b))
}

// numbered parts a name from the number at its end, -1 for none.
func numbered(name string) (string, int) {
	head := strings.TrimRight(name, "0123456789")
	n, err := strconv.Atoi(name[len(head):])
	if err != nil {
		return name, -1
	}
	return head, n
}

// told are reasons whose figures have a place of their own in a report.
var told = []plan.ReasonKind{plan.ReasonStepTime, plan.ReasonBound, plan.ReasonStageTime, plan.ReasonNextBest, plan.ReasonLeftOut}

// note is a reason that no figure stands for, or what devices do otherwise than usual: those of some nodes, or each.
type note struct {
	nodes []string
	each  bool
	text  string
}

// say returns the note with the nodes as who names them.
func (n note) say(who string) string {
	switch {
	case n.each:
		return "each device: " + n.text
	case len(n.nodes) > 0:
		return who + ": " + n.text
	}
	return n.text
}

// notes returns what devices do otherwise than usual, then the other reasons.
func notes(d planner.Details) (out []note) {
	at := map[string]int{}
	say := func(text, node string) {
		i, ok := at[text]
		if !ok {
			i = len(out)
			at[text], out = i, append(out, note{text: text})
		}
		out[i].nodes = append(out[i].nodes, node)
	}
	for _, device := range d.Devices {
		if slices.ContainsFunc(device.Stages, func(s planner.StageDetails) bool { return s.Recomputes }) {
			say("some activations are computed again in the backward pass, for lack of memory", device.Node)
		}
		for _, text := range device.Choices {
			say(text, device.Node)
		}
	}
	for i, n := range out {
		out[i].each = len(n.nodes) == len(d.Devices) && len(n.nodes) > 1
	}
	for _, reason := range d.Reasons {
		if !slices.Contains(told, reason.Kind) {
			out = append(out, note{text: reason.Text})
		}
	}
	return out
}

// names lists names, runs of numbers as one: "node-4 to node-7, node-9".
func names(all []string) string { return list(runs(all)) }

// nameRun is a name, or several with numbers that follow each other.
type nameRun struct {
	text  string
	count int
}

func list(runs []nameRun) string {
	texts := make([]string, len(runs))
	for i, r := range runs {
		texts[i] = r.text
	}
	return strings.Join(texts, ", ")
}

func runs(all []string) (parts []nameRun) {
	all = slices.Clone(all)
	slices.SortFunc(all, byNumber)
	for i := 0; i < len(all); {
		head, first := numbered(all[i])
		last := i
		for last+1 < len(all) && first >= 0 {
			next, n := numbered(all[last+1])
			if next != head || n != first+last+1-i {
				break
			}
			last++
		}
		switch last - i {
		case 0:
			parts = append(parts, nameRun{all[i], 1})
		case 1:
			parts = append(parts, nameRun{all[i], 1}, nameRun{all[last], 1})
		default:
			parts = append(parts, nameRun{all[i] + " to " + all[last], last - i + 1})
		}
		i = last + 1
	}
	return parts
}
