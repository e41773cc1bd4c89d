package gossip

import (
	"fmt"
	"math"

	"pnode/pipeline/meeting"
	"pnode/planner/plan"
)

// Met says how the newest outer step after step From was for the sender's workers of a replica, which counted in it.
type Met struct {
	Generation plan.Generation `json:"generation"`
	From       plan.Step       `json:"from"`
	Replica    plan.Replica    `json:"replica"`
	// Stages is how many of the replica's stages are the sender's. SentBytes went from them to other replicas.
	Stages    int   `json:"stages"`
	SentBytes int64 `json:"sent_bytes"`
	// RoundNanos are from the outer step before to this one. For WaitedNanos of them the slowest of the workers stood still, for HiddenNanos messages
	// came while all made inner steps.
	RoundNanos  int64 `json:"round_nanos"`
	WaitedNanos int64 `json:"waited_nanos"`
	HiddenNanos int64 `json:"hidden_nanos,omitempty"`
	// Spread is of the sender's stages, by replica of the plan.
	Spread meeting.Spread `json:"spread"`
}

const (
	// maxApart bounds the replicas of all spreads in a heartbeat: a member with stages of several replicas tells of fewer of them.
	maxApart = plan.MaxLocalReplicas
	// maxSquare bounds the sums of a spread: those of a model of 2^50 elements which are as large as any may be. minSquare is below the square of every number that is
	// not 0 in float32: no quotient of sums is out of bounds.
	maxSquare, minSquare = 1e100, 1e-100
	maxSent              = 1 << 50 // bytes in a round
)

// metTold counts the outer steps that a heartbeat has room for.
func metTold(all []Met) int {
	apart := 0
	for i, m := range all {
		if apart += max(1, len(m.Spread.Squares)); apart > maxApart {
			return i
		}
	}
	return len(all)
}

// check returns why no outer step can have been so, if none can.
func (m Met) check() error {
	n := len(m.Spread.Squares)
	switch {
	case m.Replica < 0 || m.Replica >= plan.MaxLocalReplicas || m.From > maxStep || m.Stages < 1 || m.Stages > maxStages || m.SentBytes < 0 || m.SentBytes > maxSent:
		return fmt.Errorf("%d stages of replica %d sent %d bytes after step %d, want one below %d and at most %d stages", m.Stages, m.Replica, m.SentBytes, m.From, plan.MaxLocalReplicas, maxStages)
	case int(m.Replica) >= n || n > plan.MaxLocalReplicas || n != len(m.Spread.Dots):
		return fmt.Errorf("replica %d says how far %d and %d replicas are apart, want itself among at most %d", m.Replica, n, len(m.Spread.Dots), plan.MaxLocalReplicas)
	}
	for r, square := range m.Spread.Squares {
		if dot := m.Spread.Dots[r]; !(isSquare(square) && math.Abs(dot) <= maxSquare) {
			return fmt.Errorf("replica %d went as far as the root of %g, %g of it with the others, want 0 to %g", r, square, dot, float64(maxSquare))
		}
	}
	if mean := m.Spread.Mean; !isSquare(mean) {
		return fmt.Errorf("all replicas went as far as the root of %g, want 0 to %g", mean, float64(maxSquare))
	}
	return nil
}

// isSquare reports whether a sum of squares of float32 numbers may come to x.
func isSquare(x float64) bool { return x == 0 || x >= minSquare && x <= maxSquare }
