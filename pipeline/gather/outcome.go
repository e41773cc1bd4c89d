package gather

import (
	"sync/atomic"
	"time"

	"pnode/pipeline/meeting"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Outcome is an outer step as a worker made it.
type Outcome struct {
	plan.Merged
	// Reports says by replica how its inner steps went, where the worker is its replica's coordinator: of the counted ones at least.
	Reports []wire.OuterReport
	// Spread is of the worker's layers; without numbers where its replica does not count.
	Spread meeting.Spread
	Took   Took
	// Meanwhile counts the inner steps of the next round that the worker has made since it offered, and goes on from.
	Meanwhile plan.Step
}

// Took says what a round was for a worker.
type Took struct {
	// SentBytes and TakenBytes are of messages with outer gradients, to and from other replicas.
	SentBytes, TakenBytes int64
	// Round is from the outer step before to this one. For Waited of it the worker stood still: for other replicas, their messages, the log and the
	// outer step. For Hidden of it messages of others came while it made inner steps.
	Round, Waited, Hidden time.Duration
}

// meter measures a round. Its methods may be called concurrently, but for stands and end.
type meter struct {
	begun       time.Time
	waited      time.Duration
	sent, taken atomic.Int64
	first, last atomic.Int64 // when messages of others came, in nanoseconds since begun; 0: none has
}

// stands takes in that the worker has stood still since a time.
func (m *meter) stands(since time.Time) { m.waited += time.Since(since) }

// took takes in a message of another replica.
func (m *meter) took(bytes int) {
	m.taken.Add(int64(bytes))
	at := max(1, time.Since(m.begun).Nanoseconds())
	m.first.CompareAndSwap(0, at)
	for old := m.last.Load(); at > old && !m.last.CompareAndSwap(old, at); old = m.last.Load() {
	}
}

// end returns what the round was, whose outer step is made. The worker has waited for that since a time.
func (m *meter) end(since time.Time) Took {
	hidden := min(time.Duration(m.last.Load()), since.Sub(m.begun)) - time.Duration(m.first.Load())
	return Took{
		SentBytes: m.sent.Load(), TakenBytes: m.taken.Load(),
		Round: time.Since(m.begun), Waited: m.waited, Hidden: max(0, hidden),
	}
}

// Losses returns the run's loss of each step after From up to To under the plan: the mean over the micro-batches that count, which are those of
// counted replicas that came so far. It is nil where a counted replica's losses are not here.
func (o Outcome) Losses(p plan.Plan) []float64 {
	losses, micros := make([]float64, o.To-o.From), make([]float64, o.To-o.From)
	for _, q := range o.Counted() {
		steps := o.Parts[q].Steps
		if int(q) >= len(o.Reports) || o.Reports[q].Steps() != steps {
			return nil
		}
		for i, loss := range o.Reports[q].Losses {
			losses[i] += loss * float64(p.Replicas[q].Micros)
			micros[i] += float64(p.Replicas[q].Micros)
		}
	}
	for i := range losses {
		losses[i] /= micros[i]
	}
	return losses
}

// HeldOut returns the held-out losses before the update of step From+1, which replica 0 computes; nil where there are none that count.
func (o Outcome) HeldOut() (heldOut, f32 *float64) {
	if len(o.Reports) == 0 || o.Parts[0].Steps == 0 {
		return nil, nil
	}
	return o.Reports[0].HeldOut, o.Reports[0].HeldOutF32
}
