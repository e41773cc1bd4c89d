package planner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// Details is a plan with its reasons and the figures behind them.
type Details struct {
	Plan    plan.Plan
	Reasons plan.Reasons
	// Replicas and Stages are the cut: copies of the model, devices in each.
	Replicas, Stages int
	// Step is the predicted time of a step. It is made of Passes, until the last backward ends, and of what follows:
	// Exchange between replicas and between the ends of the model, Commit, and Update of the slowest optimizer.
	Step, Passes, Exchange, Commit, Update schedule.Nanos
	// Unlinked holds what Passes would be if messages between stages took no time.
	Unlinked schedule.Nanos
	// Bound says what the step spends its time on.
	Bound string
	// SumGroups is into how many groups the run's sums cut the micro-batches: there are at most as many replicas.
	SumGroups int
	// Devices have stages, in the order of the plan's workers.
	Devices []DeviceDetails
	// All counts the measured devices.
	All int
	// Unused get no stage.
	Unused []Unused
	// Others are plans that differ in their shape, or in the kinds of their devices, the quickest first.
	Others []Other
}

// DeviceDetails has the figures of a device with stages.
type DeviceDetails struct {
	Worker plan.WorkerID
	// Node and Title are how people call the device's node and the device, Profile what was measured of it.
	Node, Title string
	Profile     plan.DeviceProfile
	// NeedBytes of TotalBytes are taken.
	NeedBytes, TotalBytes int64
	// Busy is the computing in a step, without the update.
	Busy schedule.Nanos
	// Choices say what it keeps elsewhere, and in which precision it stores.
	Choices []string
	Stages  []StageDetails
}

// StageDetails is one stage of a device.
type StageDetails struct {
	At     plan.StageID
	Layers plan.LayerRange
	// Micros counts the micro-batches of a step, Micro is the computing for one, with what is recomputed.
	Micros   int
	Micro    schedule.Nanos
	InFlight int
	// Recomputes reports whether the planner has it compute activations again, to save memory.
	Recomputes bool
	// Sends reports whether the next stage is on another node: Link leads there, in Codec.
	Sends bool
	Link  cost.Link
	Codec plan.Codec
}

// Unused is a device without a stage, or a node without a device that could have one.
type Unused struct {
	// Name is the node's and the device's; Node is the node's alone, Model what it computes on.
	Name, Node, Model string
	// With is the best step that uses it, 0 where the search saw none, and In the shape of that plan.
	With schedule.Nanos
	In   string
	// Why says what keeps it from any plan, empty where nothing does.
	Why string
}

// why says it for people, beside the step of the plan without it.
func (u Unused) why(step schedule.Nanos) string {
	switch {
	case u.Why != "":
		return u.Why
	case u.With == 0:
		return "no plan with it comes close"
	}
	return fmt.Sprintf("the best plan with it takes %s a step (%s), without it %s", plan.Time(u.With), u.In, plan.Time(step))
}

// Other is a plan that was not taken.
type Other struct {
	// Shape is its cut, and that it is on other devices where it is cut as the one that was taken.
	Shape   string
	Devices int
	Step    schedule.Nanos
}

// maxOthers bounds the plans of Details that were not taken.
const maxOthers = 8

// MakeWithDetails is Make for people: with figures that take another simulation.
func MakeWithDetails(ctx context.Context, in Input) (Details, error) {
	s, best, others, err := decide(ctx, in)
	if err != nil {
		return Details{}, err
	}
	s, best, others = orFewer(ctx, in, s, best, others)
	e := explainer{s, best}
	out := Details{
		Replicas: best.shape.replicas, Stages: best.shape.stages,
		Step: best.step(), Passes: best.result.Pipelines[best.result.Slowest], Exchange: best.result.Exchange,
		Commit: best.result.Commit, Update: best.result.Update, SumGroups: in.Run.Train.Sums().Groups,
		Bound: boundText(s.problem, best), All: len(s.problem.devices), Unused: e.unused(others), Others: e.others(others),
	}
	if out.Plan, out.Reasons, err = finish(s, best, others, func(*plan.Plan) {}); err != nil {
		return Details{}, err
	}
	if out.Unlinked, err = best.unlinked(); err != nil {
		return Details{}, fmt.Errorf("planner: simulate %v without links: %w", best.shape, err)
	}
	out.Unlinked = min(out.Unlinked, out.Passes)
	out.Devices = e.devicesOf(out.Plan)
	return out, nil
}

// devicesOf returns what a step takes of each worker of a plan.
func (e explainer) devicesOf(p plan.Plan) (out []DeviceDetails) {
	busy := e.k.layout.Busy(e.k.model)
	for _, worker := range p.Workers() {
		d := e.find(worker)
		device := DeviceDetails{Worker: worker, Node: e.problem.devices[d].node, Title: e.problem.devices[d].title, Profile: e.problem.devices[d].profile, Busy: busy[d], Choices: e.choices(d)}
		device.NeedBytes, device.TotalBytes = e.k.memory(d)
		for _, at := range e.k.layout.On(d) {
			device.Stages = append(device.Stages, e.stage(at))
		}
		out = append(out, device)
	}
	return out
}

// stage returns the figures of a stage.
func (e explainer) stage(at plan.StageID) StageDetails {
	l := e.k.layout
	s, took := l.Stage(at), e.k.model.StageTime(*l.Stage(at))
	out := StageDetails{
		At: at, Layers: plan.LayerRange{First: s.First, End: s.End}, Micros: l.Micros[at.Replica], Micro: took.Micro() + took.Recompute,
		InFlight: s.Use.Slots, Recomputes: plan.JoinLevels(s.Levels) != "",
	}
	if row := l.Rows[at.Replica]; int(at.Stage) < len(row)-1 {
		next := row[at.Stage+1].Device
		out.Link, out.Codec = e.link(s.Device, next), l.Codecs[at.Replica][at.Stage]
		out.Sends = e.problem.devices[s.Device].peer != e.problem.devices[next].peer
	}
	return out
}

// unused lists what gets no stage: members without a device, then devices in their order.
func (e explainer) unused(others []*candidate) (out []Unused) {
	for _, m := range e.idle {
		out = append(out, Unused{Name: m.label, Node: m.label, Why: m.why})
	}
	for d, device := range e.problem.devices {
		if e.k.uses(d) {
			continue
		}
		left := Unused{Name: e.name(d), Node: device.node, Model: cmp.Or(device.profile.Product(), device.name)}
		if i := slices.IndexFunc(others, func(o *candidate) bool { return o.uses(d) }); i >= 0 {
			left.With, left.In = others[i].step(), others[i].shape.String()
		} else if cramped(e.models.whole(), d) {
			left.Why = fmt.Sprintf("its %s do not hold a single layer", plan.Size(device.profile.MemoryFreeBytes))
		}
		out = append(out, left)
	}
	return out
}

// others returns the plans that differ from the chosen one and from each other.
func (e explainer) others(all []*candidate) (out []Other) {
	seen := []*candidate{e.k}
	for _, o := range all {
		if len(out) == maxOthers {
			break
		}
		if !slices.ContainsFunc(seen, func(k *candidate) bool { return k.shape == o.shape && e.sameKinds(k, o) }) {
			what := o.shape.String()
			if o.shape == e.k.shape {
				what += " on other devices"
			}
			seen, out = append(seen, o), append(out, Other{what, o.shape.devices(), o.step()})
		}
	}
	return out
}

// sameKinds reports whether two candidates use equal devices, whichever of them.
func (e explainer) sameKinds(a, b *candidate) bool {
	return maps.Equal(e.kinds(a), e.kinds(b))
}

// kinds counts the devices that a candidate uses by what they are, whatever their names.
func (e explainer) kinds(k *candidate) map[plan.DeviceProfile]int {
	counts := map[plan.DeviceProfile]int{}
	for _, d := range k.devices() {
		kind := e.problem.devices[d].profile
		kind.Name = ""
		counts[kind]++
	}
	return counts
}
