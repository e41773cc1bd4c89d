package elastic

import (
	"math/rand/v2"
	"strings"
	"testing"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

func group() Group {
	return Group{
		Replicas: 4, OptimizerBytes: 8 << 20, GradientBytes: 4 << 20, ParameterBytes: 4 << 20,
		Link: cost.Link{BytesPerS: 3 << 20, RTTNanos: 2e6}, Rounds: 4, OneSite: true,
	}
}

// TestShardingTraffic has collectives of 3 MiB at 3 MiB/s: 1 s and 1 ms each.
func TestShardingTraffic(t *testing.T) {
	g := group()
	const one = schedule.Nanos(1_001_000_000)
	for _, tc := range []struct {
		s     Sharding
		freed int64
		times schedule.Nanos
	}{
		{Sharding{}, 0, 2},
		{Sharding{Optimizer: true}, 6 << 20, 2},
		{Sharding{Optimizer: true, Gradients: true}, 9 << 20, 5},
		{Sharding{Optimizer: true, Parameters: true}, 9 << 20, 9},
		{Sharding{true, true, true}, 12 << 20, 12},
	} {
		if freed, exposed := g.Freed(tc.s), g.Exposed(tc.s); freed != tc.freed || exposed != tc.times*one {
			t.Errorf("%v frees %d and exposes %d, want %d and %d", tc.s, freed, exposed, tc.freed, tc.times*one)
		}
	}
	g.Window = 4 * one
	if got := g.Exposed(Sharding{Optimizer: true, Gradients: true}); got != one {
		t.Errorf("with a window of four collectives the fifth is exposed: %d", got)
	}
}

func TestShardTakesTheCheapestThatFreesEnough(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	seen := map[Sharding]int{}
	for range 2000 {
		g := Group{
			Replicas: 1 + rng.IntN(5), OptimizerBytes: rng.Int64N(1 << 30), GradientBytes: rng.Int64N(1 << 30), ParameterBytes: rng.Int64N(1 << 30),
			Link: cost.Link{BytesPerS: 1 + rng.Int64N(1e9), RTTNanos: rng.Int64N(1e8)}, OneSite: rng.IntN(2) == 0,
			Rounds: 1 + rng.IntN(8), Window: schedule.Nanos(rng.Int64N(1e10)), FreeBytes: rng.Int64N(1<<31) * rng.Int64N(3) / 2,
		}
		s, err := Shard(g)
		if err == nil {
			seen[s]++
			if g.Freed(s) < g.FreeBytes || (s.Parameters && !g.OneSite) || ((s.Parameters || s.Gradients) && !s.Optimizer) {
				t.Fatalf("%+v shards %v", g, s)
			}
		}
		for _, other := range shardings {
			if (!other.Parameters || g.OneSite) && g.Freed(other) >= g.FreeBytes && (err != nil || g.Exposed(other) < g.Exposed(s)) {
				t.Fatalf("%+v shards %v (%v), %v would do for less", g, s, err, other)
			}
		}
	}
	if len(seen) != len(shardings) {
		t.Errorf("shardings chosen: %v", seen)
	}
}

func TestShardSaysWhatIsMissing(t *testing.T) {
	g := group()
	g.OneSite, g.FreeBytes = false, 10<<20
	if _, err := Shard(g); err == nil || !strings.Contains(err.Error(), "at most 9.0 MiB of the 10.0 MiB that 4 replicas lack, parameters stay whole") {
		t.Error(err)
	}
	if _, err := Shard(Group{}); err == nil {
		t.Error("a group of nobody is sharded")
	}
}
