package layout

import (
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// Layout is stages on devices with the programs that run them.
type Layout struct {
	cost.Rows
	Codecs [][]plan.Codec // by replica and boundary
	// Programs have nothing recomputed ahead of a gradient. They are empty where the order of the
	// passes follows from warm-ups alone.
	Programs schedule.Schedule
	Micros   []int          // by replica
	Need     []int64        // by device, bytes besides the node's own
	End      schedule.Nanos // of the last backward
	Passes   [][]schedule.Interval
	// Exposed holds by boundary what the passes take with the next more exact codec there: the end,
	// or the period of a pipeline that has one.
	Exposed map[Boundary]schedule.Nanos
}

// Boundary names the boundary after a stage of a replica.
type Boundary struct{ Replica, Stage int }

// clone returns the layout with stages of its own.
func (l *Layout) clone() *Layout {
	other := *l
	other.Need, other.Rows = slices.Clone(l.Need), make(cost.Rows, len(l.Rows))
	for r, row := range l.Rows {
		other.Rows[r] = slices.Clone(row)
	}
	return &other
}

// Time runs the programs and sets when passes begin and end.
func (l *Layout) Time(m *cost.Model) (err error) {
	l.End = 0
	l.Passes, err = schedule.Intervals(l.recomputing(), m.Timing(l.Rows, l.Codecs))
	for _, row := range l.Passes {
		for _, p := range row {
			l.End = max(l.End, p.End)
		}
	}
	return err
}

// Unlinked returns when the last backward of the programs would end if messages took no time.
func (l *Layout) Unlinked(m *cost.Model) (schedule.Nanos, error) {
	t := m.Timing(l.Rows, l.Codecs)
	for r := range t.Replicas {
		clear(t.Replicas[r].Boundaries)
	}
	return schedule.Makespan(l.recomputing(), t)
}

// recomputing returns the programs with what is recomputed ahead of gradients.
func (l *Layout) recomputing() schedule.Schedule {
	return schedule.WithRecompute(l.Programs, func(r schedule.Replica, s schedule.Stage) bool { return l.Rows[r][s].Ahead > 0 })
}

// SumNeeds adds up what the stages of each device take.
func (l *Layout) SumNeeds(m *cost.Model) {
	l.Need = make([]int64, len(m.Devices))
	for _, row := range l.Rows {
		for _, s := range row {
			l.Need[s.Device] += m.Bytes(s)
		}
	}
}

// Busy returns by device how long it computes in a step, the update not counted.
func (l *Layout) Busy(m *cost.Model) []schedule.Nanos {
	busy := make([]schedule.Nanos, len(m.Devices))
	for r, row := range l.Rows {
		for _, s := range row {
			t := m.StageTime(s)
			busy[s.Device] += schedule.Nanos(l.Micros[r]) * (t.Micro() + t.Recompute)
		}
	}
	return busy
}

// Busiest returns the device that computes for longest, and for how long.
func (l *Layout) Busiest(m *cost.Model) (device int, computes schedule.Nanos) {
	busy := l.Busy(m)
	for d := range busy {
		if busy[d] > busy[device] {
			device = d
		}
	}
	return device, busy[device]
}

// BusiestLink returns how long messages occupy the link that has most of them, one way.
func (l *Layout) BusiestLink(m *cost.Model) (most schedule.Nanos) {
	busy := map[[2]int]schedule.Nanos{}
	for r, costs := range m.Timing(l.Rows, l.Codecs).Replicas {
		for b, hops := range costs.Boundaries {
			from, to := l.Rows[r][b].Device, l.Rows[r][b+1].Device
			for link, hop := range map[[2]int]schedule.Hop{{from, to}: hops.Activation, {to, from}: hops.Gradient} {
				busy[link] += hop.Transfer * schedule.Nanos(l.Micros[r])
				most = max(most, busy[link])
			}
		}
	}
	return most
}
