package planner

import (
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/sim"
)

const (
	// exchangedBytes are exchanged at a time between the replicas of a stage, as workers do it.
	exchangedBytes = 32 << 20
	// tailWork bounds the messages of a step between replicas that are simulated; more of them follow the passes in one sum.
	tailWork = 1 << 13
)

// tail returns what follows a candidate's passes and goes on beside them, message by message. It is nil where these are too many.
func (k *candidate) tail() *sim.Tail {
	rows, m := k.layout.Rows, k.model
	t := &sim.Tail{Tied: k.tied, Send: func(from, to int, bytes int64) schedule.Hop { return m.Link(from, to).Hop(bytes) }}
	if len(rows) > 1 && !k.apart {
		if t.Parts = k.parts(); len(t.Parts)*len(rows)*len(rows) > tailWork {
			return nil
		}
	}
	updates := make([]schedule.Nanos, len(m.Devices))
	for _, row := range rows {
		for _, at := range row {
			updates[at.Device] += m.UpdateOf(at)
		}
	}
	for r, row := range rows {
		if !k.apart {
			r = 0
		}
		coordinator := rows[r][len(rows[r])-1].Device
		stages := make([]sim.Stage, len(row))
		for s, at := range row {
			took := m.StageTime(at)
			stages[s] = sim.Stage{
				Device: at.Device, Last: took.Input + took.Weight, Layers: at.Len(), Update: updates[at.Device],
				Commit: m.Link(coordinator, at.Device).Hop(0).Latency, Report: m.Link(at.Device, coordinator).Hop(0).Latency,
			}
			if at.Use.Split {
				stages[s].Last = took.Weight
			}
		}
		t.Stages = append(t.Stages, stages)
	}
	return t
}

// parts returns the ranges of layers that the same stages hold in all replicas.
func (k *candidate) parts() (parts []sim.Part) {
	rows, memory := k.layout.Rows, k.model.Memory
	at := make([]int, len(rows)) // by replica the stage that holds the next layer
	for first := 0; first < memory.Layers(); {
		end := memory.Layers()
		for r, row := range rows {
			end = min(end, row[at[r]].End)
		}
		p := sim.Part{
			Stages: slices.Clone(at), Before: make([]int, len(rows)), Layers: end - first, Vectors: k.vectors,
			Bytes: memory.Params(first, end), Later: cost.Among(memory, first, end, k.sharded()),
		}
		p.Rounds = max(1, min(p.Layers, int((p.Bytes+exchangedBytes-1)/exchangedBytes)))
		for r, row := range rows {
			p.Before[r] = first - row[at[r]].First
			if row[at[r]].End == end {
				at[r]++
			}
		}
		if parts, first = append(parts, p), end; p.Bytes == 0 {
			parts = parts[:len(parts)-1]
		}
	}
	return parts
}
