package optimum

import (
	"pnode/pipeline/schedule"
)

// Floor bounds steps of single pipelines in 1F1B from below, with little work.
type Floor struct {
	on Devices
	// micro and backward are the work of layers: all passes of a micro-batch, and its backward passes.
	micro, backward work
}

// NewFloor returns the bounds on some devices.
func NewFloor(on Devices) Floor {
	return Floor{
		on, newWork(on, func(t schedule.StageTime) schedule.Nanos { return t.Micro() }),
		newWork(on, func(t schedule.StageTime) schedule.Nanos { return t.Input + t.Weight }),
	}
}

// Step returns a time that no step of devices in order is shorter than, with layers up to each of some ends, or cut in any way where
// these are nil:
//
//   - A stage begins after the first forward pass of those before it, and its last gradient passes these after its own passes.
//   - The first micro-batch goes to the last stage and back. Each other one takes the slowest backward pass or transfer more.
func (f Floor) Step(devices, ends []int) schedule.Nanos {
	m, micros := f.on.Model, schedule.Nanos(f.on.Micros)
	path, micro := f.micro.among(devices)
	_, slowest := f.backward.among(devices)
	if ends != nil {
		path = 0
	}
	least, first := micros*micro, 0
	for i, d := range devices {
		if i > 0 {
			bytes := f.on.Message
			if ends != nil {
				bytes = f.on.Bytes(m.Memory.Boundary(first - 1))
			}
			forth, back := m.Link(devices[i-1], d).Hop(bytes), m.Link(d, devices[i-1]).Hop(bytes)
			path += forth.Transfer + forth.Latency + back.Transfer + back.Latency
			slowest = max(slowest, forth.Transfer, back.Transfer)
		}
		if ends != nil {
			t := m.Devices[d].Time(first, ends[i])
			least, first = max(least, path+micros*t.Micro()), ends[i]
			path, slowest = path+t.Micro(), max(slowest, t.Input+t.Weight)
		}
	}
	return max(least, path+(micros-1)*slowest)
}

// Slowest returns how long the slowest of these devices computes a micro-batch at least.
func (f Floor) Slowest(devices, ends []int) schedule.Nanos {
	_, slowest := f.micro.among(devices)
	first := 0
	for i, end := range ends {
		slowest, first = max(slowest, f.on.Model.Devices[devices[i]].Time(first, end).Micro()), end
	}
	return slowest
}

// among returns how long some devices take at least for all layers together, and the slowest of them.
func (w work) among(devices []int) (all, slowest schedule.Nanos) {
	most, sum := int64(1), int64(1)
	for _, d := range devices {
		most, sum = max(most, w.rates[d]), sum+w.rates[d]
	}
	whole := min(w.quickest[len(w.quickest)-1], schedule.MaxNanos) << workBits
	return whole / schedule.Nanos(most), whole / schedule.Nanos(sum)
}
