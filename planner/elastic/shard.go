package elastic

import (
	"fmt"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// Sharding says which state of a stage its replicas hold in parts, each replica one.
type Sharding struct {
	Optimizer, Gradients, Parameters bool
}

func (s Sharding) String() string {
	switch s {
	case Sharding{}:
		return "nothing"
	case Sharding{Optimizer: true}:
		return "optimizer state"
	case Sharding{Optimizer: true, Gradients: true}:
		return "optimizer state and gradients"
	case Sharding{Optimizer: true, Parameters: true}:
		return "optimizer state and parameters"
	case Sharding{true, true, true}:
		return "optimizer state, gradients and parameters"
	}
	return "invalid"
}

// shardings are those that make sense: who holds all of the optimizer state needs all of the
// gradients and parameters too.
var shardings = []Sharding{{}, {Optimizer: true}, {Optimizer: true, Gradients: true}, {Optimizer: true, Parameters: true}, {true, true, true}}

// Group is a stage that several replicas hold.
type Group struct {
	Replicas int
	// OptimizerBytes, GradientBytes, ParameterBytes are the whole stage's.
	OptimizerBytes, GradientBytes, ParameterBytes int64
	// Link is the slowest between the replicas; OneSite tells that they are peers of one site,
	// who alone may shard parameters.
	Link    cost.Link
	OneSite bool
	// Rounds are the groups of micro-batches of a step: sharded gradients are reduced and
	// sharded parameters gathered for each.
	Rounds int
	// Window is how much of a step's communication computing hides.
	Window schedule.Nanos
	// FreeBytes is what sharding must free.
	FreeBytes int64
}

// Freed is how many bytes a replica does not hold.
func (g Group) Freed(s Sharding) int64 {
	var whole int64
	if s.Optimizer {
		whole += g.OptimizerBytes
	}
	if s.Gradients {
		whole += g.GradientBytes
	}
	if s.Parameters {
		whole += g.ParameterBytes
	}
	return whole - whole/int64(g.Replicas)
}

// Exposed is what a step's communication between the replicas takes beyond the window:
// one reduce-scatter of the gradients and one all-gather of the parameters, as without
// sharding; sharded gradients are reduced every round, sharded parameters gathered twice a
// round, for forward and for backward (ZeRO, Rajbhandari et al. 2020, section 7).
func (g Group) Exposed(s Sharding) schedule.Nanos {
	scatters, gathers := 1, 1
	if s.Gradients {
		scatters = g.Rounds
	}
	if s.Parameters {
		gathers = 2 * g.Rounds
	}
	total := g.collective(g.GradientBytes, scatters) + g.collective(g.ParameterBytes, gathers)
	return max(0, total-g.Window)
}

// collective is what so many reduce-scatters or all-gathers of the whole take: a replica
// sends all but its own part each time.
func (g Group) collective(bytes int64, times int) schedule.Nanos {
	hop := g.Link.Hop(bytes - bytes/int64(g.Replicas))
	return min(hop.Transfer+hop.Latency, cost.Longest/schedule.Nanos(2*max(times, 1))) * schedule.Nanos(times)
}

// Shard chooses what to shard: of all that frees enough the one with the least exposed
// communication, and then the one that shards least. The error says what is missing.
func Shard(g Group) (Sharding, error) {
	if g.Replicas < 1 || g.Rounds < 1 || min(g.OptimizerBytes, g.GradientBytes, g.ParameterBytes) < 0 || max(g.OptimizerBytes, g.GradientBytes, g.ParameterBytes) > maxBytes {
		return Sharding{}, fmt.Errorf("%w: sharding %+v", ErrBadProblem, g)
	}
	best, found, most := Sharding{}, false, int64(0)
	for _, s := range shardings {
		if s.Parameters && !g.OneSite {
			continue
		}
		most = max(most, g.Freed(s))
		if g.Freed(s) >= g.FreeBytes && (!found || g.Exposed(s) < g.Exposed(best)) {
			best, found = s, true
		}
	}
	if !found {
		where := ""
		if !g.OneSite {
			where = ", parameters stay whole because the replicas are at different sites"
		}
		return Sharding{}, fmt.Errorf("elastic: sharding frees at most %s of the %s that %d replicas lack%s", cost.Size(most), cost.Size(g.FreeBytes), g.Replicas, where)
	}
	return best, nil
}
