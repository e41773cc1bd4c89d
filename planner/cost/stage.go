package cost

import (
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// Stage is one stage of a replica on a device, with what was chosen for it.
type Stage struct {
	Device, First, End int
	// Worker is the number of the device's program.
	Worker int
	Use    schedule.Use
	Shares []model.Share // by layer, of the optimizer state; nil: all of it
	// Partials counts sums of gradients that wait for others (plan.Sums).
	Partials int
	Levels   []model.Recompute // by layer; nil: nothing is recomputed
	// Offload keeps the optimizer state in host memory.
	Offload bool
	// Ahead counts the last layers, which are recomputed before their gradient has come.
	Ahead int
	// Measured overrides the modelled times per micro-batch, and that of the update where that was
	// measured too, else it has 0. It is nil for a stage that nobody measured.
	Measured *schedule.StageTime
}

// Len returns the number of layers.
func (s Stage) Len() int { return s.End - s.First }

// dropsEarly reports whether the input gradient reads what a level drops. Otherwise only the weight
// gradient does, which recomputes it when its turn comes.
func (s Stage) dropsEarly(level model.Recompute) bool {
	return level == model.RecomputeBlock || level != model.RecomputeNothing && !s.Use.Split
}

// Rows holds stages by replica and stage number.
type Rows [][]Stage

// Stage returns the stage at a place.
func (rows Rows) Stage(at plan.StageID) *Stage { return &rows[at.Replica][at.Stage] }

// On returns the places of a device's stages, by replica and stage number.
func (rows Rows) On(device int) (at []plan.StageID) {
	for r, row := range rows {
		for s := range row {
			if row[s].Device == device {
				at = append(at, plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(s)})
			}
		}
	}
	return at
}

// Recompute reports whether any stage recomputes something by choice.
func (rows Rows) Recompute() bool {
	return slices.ContainsFunc(rows, func(row []Stage) bool {
		return slices.ContainsFunc(row, func(s Stage) bool { return s.Levels != nil })
	})
}

// MeasuredStage is where one stage's step went: computing forwards, computing backwards, and
// applying the update. A time of 0 was not measured.
type MeasuredStage struct {
	Replica                                  schedule.Replica
	Stage                                    schedule.Stage
	ForwardNanos, BackwardNanos, UpdateNanos int64
}

// PerMicro returns the times of one of so many micro-batches; not ok where the passes were not
// measured.
func (s MeasuredStage) PerMicro(micros int) (forward, backward, update schedule.Nanos, ok bool) {
	each := func(nanos int64) schedule.Nanos { return min(schedule.Nanos(nanos)/schedule.Nanos(micros), Longest) }
	update = min(schedule.Nanos(max(s.UpdateNanos, 0)), Longest)
	return each(s.ForwardNanos), each(s.BackwardNanos), update, min(s.ForwardNanos, s.BackwardNanos) > 0
}

// Scaled returns the times with a measured forward, and a measured backward that is parted into
// weight gradient, recomputation and input gradient in the modelled proportion.
func Scaled(t schedule.StageTime, forward, backward schedule.Nanos) schedule.StageTime {
	backward = max(1, backward)
	modelled := t.Input + t.Weight + t.Recompute
	t.Forward, t.Weight, t.Recompute = forward, MulDiv(backward, t.Weight, modelled), MulDiv(backward, t.Recompute, modelled)
	t.Input = max(0, backward-t.Weight-t.Recompute)
	return t
}

// SetMeasured gives stages the times that were measured of them, in rows that take so many
// micro-batches by replica. It passes over times of stages that are not there.
func (m *Model) SetMeasured(rows Rows, micros []int, stages []MeasuredStage) {
	for _, seen := range stages {
		if seen.Replica < 0 || seen.Stage < 0 || int(seen.Replica) >= len(rows) || int(seen.Stage) >= len(rows[seen.Replica]) {
			continue
		}
		if forward, backward, update, ok := seen.PerMicro(micros[seen.Replica]); ok {
			at := &rows[seen.Replica][seen.Stage]
			t := Scaled(m.StageTime(*at), forward, backward).Over(max(at.Use.Segments, 1))
			t.Update = update
			at.Measured = &t
		}
	}
}
