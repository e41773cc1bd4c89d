package layout

import (
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// Cell is a stage of a replica on a unit.
type Cell struct {
	Unit, First, End int
	// Worker is the number of the unit's program.
	Worker int
	Use    schedule.Use
	Shares []model.Share     // by layer, of the optimizer state; nil: all of it
	Levels []model.Recompute // by layer; nil: nothing is computed again
	// Offload keeps the optimizer state in host memory.
	Offload bool
	// Ahead of the last layers are computed again before their gradient is there.
	Ahead int
	// Seen is what the stage was seen to take per micro-batch, and its update, 0 where that was not
	// seen; nil where neither was.
	Seen *schedule.StageTime
}

// Len is how many layers the stage has.
func (k Cell) Len() int { return k.End - k.First }

// Rows are cells by replica and stage.
type Rows [][]Cell

// At names a cell.
type At struct {
	Replica schedule.Replica
	Stage   schedule.Stage
}

// Cell is the one at a place.
func (rows Rows) Cell(at At) *Cell { return &rows[at.Replica][at.Stage] }

// On are the places of a unit's stages, by replica and stage.
func (rows Rows) On(unit int) (at []At) {
	for r, row := range rows {
		for s, k := range row {
			if k.Unit == unit {
				at = append(at, At{schedule.Replica(r), schedule.Stage(s)})
			}
		}
	}
	return at
}

// Recompute tells whether anything is computed again by choice.
func (rows Rows) Recompute() bool {
	return slices.ContainsFunc(rows, func(row []Cell) bool {
		return slices.ContainsFunc(row, func(at Cell) bool { return at.Levels != nil })
	})
}

// Layout is cells with the programs that run them.
type Layout struct {
	Rows
	Codecs [][]plan.Codec // by replica and boundary
	// Programs are with nothing computed again ahead of a gradient.
	Programs schedule.Schedule
	Micros   []int          // by replica
	Need     []int64        // by unit, bytes beside the node's own
	End      schedule.Nanos // of the last backward
	// Exposed is by boundary the end with the next more exact codec there.
	Exposed map[Boundary]schedule.Nanos
}

// Boundary is the one behind a stage of a replica.
type Boundary struct{ Replica, Stage int }

// chunks is how many stages of a replica a worker holds.
func (l *Layout) chunks() int {
	n := 0
	for _, k := range l.Rows[0] {
		if k.Worker == l.Rows[0][0].Worker {
			n++
		}
	}
	return n
}

// clone is the layout with cells of its own.
func (l *Layout) clone() *Layout {
	other := *l
	other.Need, other.Rows = slices.Clone(l.Need), make(Rows, len(l.Rows))
	for r, row := range l.Rows {
		other.Rows[r] = slices.Clone(row)
	}
	return &other
}
