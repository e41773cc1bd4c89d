package cost

import (
	"pnode/kernels"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// StageTime returns the time of a stage per micro-batch, or per segment of one on average, without
// its update. Where its backward is split, the weight gradient recomputes what it alone reads, and
// a whole block and the head's logits twice. Measured times override all that.
func (m *Model) StageTime(s Stage) schedule.StageTime {
	if s.Measured != nil {
		passes := *s.Measured
		passes.Update = 0
		return passes
	}
	d, costs := m.Devices[s.Device], m.On(s.Device).Costs()
	out := d.Time(s.First, s.End)
	out.Update = 0
	_, fixed := m.Memory.Level()
	for i, level := range m.LevelsOf(s) {
		if s.Use.Split {
			out.Weight += d.Speed.split(&costs[s.First+i])
		}
		again := m.Again(s, i, level).Time
		if fixed { // there it is in the costs, as a part of the input gradient
			out.Input -= again
		}
		if s.Use.Split {
			out.Weight += again
		}
		switch {
		case !s.dropsEarly(level):
		case i >= s.Len()-s.Ahead:
			out.Recompute += again
		default:
			out.Input += again
		}
	}
	if n := schedule.Nanos(s.Use.Segments); n > 1 { // each segment makes these calls
		for _, k := range costs[s.First:s.End] {
			out.Forward += schedule.Nanos(k.ForwardCalls) * d.Speed.Call * (n - 1)
			out.Input += schedule.Nanos(k.InputCalls) * d.Speed.Call * (n - 1)
		}
	}
	return out.Over(max(s.Use.Segments, 1))
}

// Timing returns the times of the passes and messages of rows, with codecs by replica and boundary.
// Reductions and updates follow the passes and are not in it.
func (m *Model) Timing(rows Rows, codecs [][]plan.Codec) (t schedule.Timing) {
	for r, row := range rows {
		costs := schedule.Costs{Stages: make([]schedule.StageTime, len(row))}
		for s, at := range row {
			costs.Stages[s] = m.StageTime(at)
			if s > 0 {
				from, to := row[s-1].Device, at.Device
				bytes := codecs[r][s-1].Bytes(Elements(m.Memory.Boundary(at.First-1)/int64(max(at.Use.Segments, 1))), m.Memory.Token())
				costs.Boundaries = append(costs.Boundaries, schedule.Boundary{Activation: m.Link(from, to).Hop(bytes), Gradient: m.Link(to, from).Hop(bytes)})
			}
		}
		t.Replicas = append(t.Replicas, costs)
	}
	return t
}

// Elements returns how many elements a float32 tensor of so many bytes has.
func Elements(bytes int64) int64 { return (bytes + 3) / 4 }

// Crossing returns the time of copying a stage's optimizer state to a device, and back at the same
// time.
func (m *Model) Crossing(device, first, end int) schedule.Nanos {
	bytes, d := m.Memory.Moments(first, end), m.Devices[device]
	if bytes > 0 && d.Speed.Times.Copy.Measured() {
		return d.Speed.call(kernels.WorkCopy, bytes)
	}
	return Duration(bytes, d.CopyBytesPerS)
}

// Update returns the optimizer's time on a device for the layers [first,end).
func (m *Model) Update(device, first, end int) schedule.Nanos {
	d, parts := m.Devices[device], m.Memory.Parts()
	sum := d.Time(first, end).Update
	for _, r := range parts.Layers {
		if from, to := max(first, r.First), min(end, r.End); from < to {
			part := d.Time(from, to).Update
			sum -= part - m.Memory.shared(part, from, to)
		}
	}
	if m.Offloads(device) {
		sum = max(sum, m.Crossing(device, first, end))
	}
	return sum
}

// UpdateOf returns the optimizer's time for a stage, as it was measured where it was.
func (m *Model) UpdateOf(s Stage) schedule.Nanos {
	if s.Measured != nil && s.Measured.Update > 0 {
		return s.Measured.Update
	}
	return m.Update(s.Device, s.First, s.End)
}

// Updates returns the optimizer's time on the device with the most to update.
func (m *Model) Updates(rows Rows) (slowest schedule.Nanos) {
	sums := make([]schedule.Nanos, len(m.Devices))
	for _, row := range rows {
		for _, s := range row {
			sums[s.Device] += m.UpdateOf(s)
			slowest = max(slowest, sums[s.Device])
		}
	}
	return slowest
}

// Exchange returns the time of one reduce-scatter or one all-gather of layers between replicas.
// Each layer's vector is cut into one part per replica, and a device sends every part but its own
// to the part's owner, or its own to all. Messages of one device follow each other, devices work
// at the same time. Of the vectors there is one, or by replica so many.
func (m *Model) Exchange(rows Rows, layers plan.LayerRanges, vectors []int) schedule.Nanos {
	if len(layers) == 0 || len(rows) < 2 {
		return 0
	}
	var slowest, latency schedule.Nanos
	sums := make([]schedule.Nanos, len(m.Devices))
	m.meet(rows, func(r, from, to, first, end int) {
		bytes := Among(m.Memory, first, end, layers)
		if vectors != nil {
			bytes *= int64(vectors[r])
		}
		if bytes > 0 {
			hop := m.Link(from, to).Hop(bytes / int64(len(rows)))
			sums[from] += hop.Transfer
			latency = max(latency, hop.Latency)
		}
		slowest = max(slowest, sums[from])
	})
	return min(slowest+latency, Longest/2)
}

// Nanoseconds that a node takes for each parameter in an outer step: to write its own message, to read another replica's twice, to look at it and
// to add it up, and to make the step.
const (
	writeNanos = 10
	readNanos  = 6
	outerNanos = 4
)

// OuterStep returns the time of an outer step: each stage sends what it has learned of its layers to those that hold them in the other replicas, so many bytes
// for some parameters, and reads theirs. What a device sends follows one another, and so does what it gets. For travels of that time messages are on their way.
func (m *Model) OuterStep(rows Rows, bytes func(params int64) int64) (all, travels schedule.Nanos) {
	var slowest, latency schedule.Nanos
	out, in, host := make([]schedule.Nanos, len(m.Devices)), make([]schedule.Nanos, len(m.Devices)), make([]schedule.Nanos, len(m.Devices))
	m.meet(rows, func(_, from, to, first, end int) {
		params := m.Memory.Trained(first, end)
		if hop := m.Link(from, to).Hop(bytes(params)); params > 0 {
			out[from], in[to], latency = out[from]+hop.Transfer, in[to]+hop.Transfer, max(latency, hop.Latency)
		}
		host[to] += readNanos * schedule.Nanos(params)
	})
	for _, row := range rows {
		for _, s := range row {
			host[s.Device] += (writeNanos + outerNanos) * schedule.Nanos(m.Memory.Trained(s.First, s.End))
		}
	}
	busiest := schedule.Nanos(0)
	for d := range out {
		slowest = max(slowest, min(max(out[d], in[d]), Longest/4)+min(host[d], Longest/4))
		busiest = max(busiest, min(host[d], Longest/4))
	}
	return slowest + latency, slowest + latency - busiest
}

// meet calls visit for each range of layers that a device of replica r holds whole, and one of another replica, in the order of replicas, stages and
// other replicas.
func (m *Model) meet(rows Rows, visit func(r, from, to, first, end int)) {
	at := make([]int, len(rows)) // by replica the stage that holds a layer
	for r := range rows {
		clear(at)
		for i := range rows[r] {
			s := &rows[r][i]
			for r2, other := range rows {
				if r2 == r {
					continue
				}
				for other[at[r2]].End <= s.First {
					at[r2]++
				}
				s2 := at[r2]
				for first := s.First; first < s.End; s2++ {
					end := min(s.End, other[s2].End)
					visit(r, s.Device, other[s2].Device, first, end)
					first = end
				}
			}
		}
	}
}

// Among returns the bytes of parameters of the layers [first,end) that are among layers.
func Among(m *MemoryModel, first, end int, layers plan.LayerRanges) (bytes int64) {
	for _, r := range layers {
		if from, to := max(first, r.First), min(end, r.End); from < to {
			bytes += m.Params(from, to)
		}
	}
	return bytes
}

// Tied returns the time that the two ends of a replica need to add up the tied embedding's
// gradient, of so many bytes.
func (m *Model) Tied(rows Rows, bytes int64) (slowest schedule.Nanos) {
	for _, row := range rows {
		if first, last := row[0].Device, row[len(row)-1].Device; first != last {
			forth, back := m.Link(first, last).Hop(bytes), m.Link(last, first).Hop(bytes)
			slowest = max(slowest, forth.Transfer+forth.Latency, back.Transfer+back.Latency)
		}
	}
	return slowest
}

// Commit returns the slowest round trip with the coordinator, the last stage of replica 0.
func (m *Model) Commit(rows Rows) (slowest schedule.Nanos) {
	last := rows[0][len(rows[0])-1].Device
	for _, row := range rows {
		for _, s := range row {
			slowest = max(slowest, m.Link(s.Device, last).Hop(0).Latency+m.Link(last, s.Device).Hop(0).Latency)
		}
	}
	return slowest
}
