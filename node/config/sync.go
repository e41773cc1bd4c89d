package config

import (
	"errors"
	"fmt"
	"strings"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// leastEvery is the fewest inner steps of a round: with one, every-step has the same messages and better losses.
const leastEvery = 2

// syncRule returns when replicas come together, and refuses settings that leave nobody to make local steps. The error wraps ErrInvalid.
func syncRule(c Config) (plan.SyncRule, error) {
	r, err := plan.ParseSync(c.Sync)
	if err != nil {
		return r, c.refuse("sync", c.Sync, errors.New(strings.TrimPrefix(err.Error(), plan.ErrBadInput.Error()+": sync: ")))
	}
	if !r.Local {
		return r, nil
	}
	spec, bad := schedule.ParseSpec(c.schedule())
	shared := bad == nil && spec.Replicas() > 1 // other texts are refused where the cut is looked at
	end := r.WarmupEnd(plan.Step(c.Steps))
	const apart = "with local steps (--sync local)"
	switch {
	case r.Every > 0 && r.Every < leastEvery:
		err = c.invalid("sync", c.Sync, fmt.Sprintf("h of %d or more steps between outer steps; every-step is better than to meet after each", leastEvery))
	case r.Every > plan.Step(c.Steps):
		err = c.invalid("sync", c.Sync, fmt.Sprintf("h of at most %d, the run's steps (--steps): replicas would meet at the end alone", c.Steps))
	case end >= plan.Step(c.Steps):
		err = c.invalid("sync", c.Sync, fmt.Sprintf("warmup of less than %d, the run's steps (--steps), or --sync every-step", c.Steps))
	case c.Micros < 2:
		err = c.invalid("micros", c.Micros, "2 or more "+apart+": each replica takes micro-batches of a step")
	case c.Replicas == 1:
		err = c.invalid("replicas", c.Replicas, "auto, or 2 or more "+apart+": one copy of the model has no other to meet, --sync every-step suits it")
	case c.Replicas > plan.MaxLocalReplicas:
		err = c.invalid("replicas", c.Replicas, fmt.Sprintf("auto, or 2 to %d %s: each sends to all others", plan.MaxLocalReplicas, apart))
	case c.SumGroups == 1:
		err = c.invalid("sum_groups", c.SumGroups, "auto, or 2 or more "+apart+": each replica takes whole groups")
	case c.Shard == plan.ShardOn.String():
		err = c.invalid("shard", c.Shard, "auto or off "+apart+": each replica has an optimizer state of its own")
	case shared:
		err = c.invalid("schedule", c.Schedule, "auto, or a schedule of one copy of the model on each device, such as 1f1b or zb-h2, "+apart)
	}
	return r, err
}
