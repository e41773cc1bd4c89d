package recompute

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"pnode/pipeline"
	"pnode/planner/plan"
)

var errNoState = errors.New("recompute: the ledgers lack what led to a plan's begin")

// states has what plans have left: of a step the layers, and what replicas with local steps have for themselves.
type states struct {
	run     plan.RunSpec
	wanted  map[plan.Step]bool
	initial func(layer int, dst io.Writer) error // nil: the run begins with random weights
	mu      sync.Mutex                           // guards the rest
	layers  map[plan.Step]map[int][]byte
	own     map[plan.Own]map[int][]byte
}

// keeper keeps the states of one plan's replica. It implements pipeline.Keeper.
type keeper struct {
	*states
	plan    plan.Plan
	replica plan.Replica
}

// Save reads a state. What nothing begins with is dropped.
func (k keeper) Save(_ context.Context, s pipeline.State) error {
	read := map[int][]byte{}
	for _, l := range s.Layers {
		b, err := io.ReadAll(l)
		if err != nil {
			return err
		}
		read[l.Layer] = b
	}
	if !k.wanted[s.Step] {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	into := k.layers[s.Step]
	if of := (plan.Own{Replica: k.replica, Step: s.Step}); s.Own {
		if k.own[of] == nil {
			k.own[of] = map[int][]byte{}
		}
		into = k.own[of]
	} else if into == nil {
		into = map[int][]byte{}
		k.layers[s.Step] = into
	}
	for l, b := range read {
		into[l] = b
	}
	return nil
}

// Load writes a part of what the plan begins with.
func (k keeper) Load(_ context.Context, layer int, of pipeline.Part, dst io.Writer) error {
	if k.plan.Start == 0 {
		if k.initial == nil {
			return errNoState
		}
		return k.initial(layer, dst)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	state, params := k.layers[k.plan.Start][layer], 4*k.run.Model.LayerLen(layer)
	if len(state) < params {
		return fmt.Errorf("%w: layer %d of step %d, where generation %d begins", errNoState, layer, k.plan.Start, k.plan.Generation)
	}
	parts := map[pipeline.Part][]byte{pipeline.Whole: state, pipeline.Parameters: state[:params], pipeline.Moments: state[params:]}
	if own := k.plan.Replicas[k.replica].Own; own != nil {
		mine, moments := k.own[plan.Own{Replica: own.Replica, Step: own.Step}][layer], pipeline.LayerStateBytes(k.run, layer)-params
		if len(mine) < moments {
			return fmt.Errorf("%w: what replica %d had for itself of layer %d at step %d", errNoState, own.Replica, layer, own.Step)
		}
		parts = map[pipeline.Part][]byte{pipeline.Parameters: state[:params], pipeline.OuterMomentum: state[params:], pipeline.Moments: mine[:moments], pipeline.Missed: mine[moments:]}
	}
	_, err := dst.Write(parts[of])
	return err
}
