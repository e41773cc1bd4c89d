package planner

import (
	"errors"
	"fmt"
	"strings"

	"pnode/planner/cost"
	"pnode/planner/layout"
	"pnode/planner/partition"
	"pnode/planner/plan"
)

// tooLittle says why a shape whose stages need so many bytes, without what passes take, is refused
// even on the roomiest devices. A device that passes alone would fill is named: more devices of that
// size would not help. The error wraps ErrNoFit.
func (p *problem) tooLittle(m *cost.Model, sh shape, roomiest []int, need int64) error {
	var have int64
	for _, i := range roomiest {
		d, pass := p.devices[i], m.On(i).Pass()
		if m.Devices[i].FreeBytes == 0 {
			return fmt.Errorf("%w: %s has %s for the run, the passes of a stage alone need %s, however few its layers; allow more with --memory, use a smaller micro-batch or a smaller model, or add a node with more memory",
				ErrNoFit, p.name(i), plan.Size(d.profile.MemoryFreeBytes), plan.Size(pass))
		}
		have += min(d.profile.MemoryFreeBytes, 1<<48)
		need += pass
	}
	the := "the roomiest device has"
	if len(roomiest) > 1 {
		the = fmt.Sprintf("the roomiest %d devices have", len(roomiest))
	}
	return fmt.Errorf("%w: %v need %s at least, %s %s; add a node, allow more with --memory, use fewer replicas, a smaller model or a smaller micro-batch",
		ErrNoFit, sh, plan.Size(need), the, plan.Size(have))
}

// noFit puts names to a partition's refusal; other errors stay as they are. The error wraps ErrNoFit.
func (p *problem) noFit(m *cost.Model, devices []int, err error) error {
	var no *partition.NoFit
	if !errors.As(err, &no) {
		return err
	}
	i := devices[no.Device]
	d, layers := p.devices[i], plan.LayerRange{First: no.First, End: no.End}
	if no.Host {
		return p.noHost(m, i, fmt.Sprintf("layers %v", layers), no.NeedBytes)
	}
	// What passes take has been taken off the free bytes.
	need, free := no.NeedBytes+m.On(i).Pass(), no.FreeBytes+d.profile.MemoryFreeBytes-m.Devices[i].FreeBytes
	fewer := ""
	if n := m.Memory.Parts().Partials; n > 0 {
		fewer = fmt.Sprintf(", fewer sum groups (a new run with --sum-groups 1 needs %s less)", plan.Size(int64(n)*m.Memory.Params(no.First, no.End)))
	}
	return fmt.Errorf("%w: %s would need %s for layers %v, %s are free; add a node, allow more with --memory, use more stages%s, a smaller model or a smaller micro-batch",
		ErrNoFit, p.name(i), plan.Size(need), layers, plan.Size(free), fewer)
}

// noHost says that a node lacks memory for the optimizer state of something.
func (p *problem) noHost(m *cost.Model, device int, of string, need int64) error {
	return fmt.Errorf("%w: %s would keep the optimizer state of %s in the memory of its node, %s, where %s are free; add a node, or free memory there",
		ErrNoFit, p.name(device), of, plan.Size(need), plan.Size(m.Devices[device].HostBytes))
}

// noLayout puts names to a layout's refusal. The error wraps ErrNoFit.
func (p *problem) noLayout(k *candidate, no *layout.NoFit) error {
	if no.Host {
		return p.noHost(k.model, no.Device, "its stages", no.NeedBytes)
	}
	var stages, inFlight []string
	for i, at := range no.At {
		stages = append(stages, fmt.Sprintf("replica %d stage %d", at.Replica, at.Stage))
		inFlight = append(inFlight, fmt.Sprint(no.InFlight[i]))
	}
	return fmt.Errorf("%w: %s would need %s for %s under %s, which keeps %s micro-batches there, %s are free; take a schedule that keeps fewer (1f1b), add a node, or use a smaller model or a smaller micro-batch",
		ErrNoFit, p.name(no.Device), plan.Size(no.NeedBytes), strings.Join(stages, " and "), k.order.spec, strings.Join(inFlight, " and "), plan.Size(no.FreeBytes))
}
