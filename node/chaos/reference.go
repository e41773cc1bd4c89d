package chaos

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"pnode/checkpoint"
	"pnode/node"
	"pnode/node/api"
	"pnode/node/ledger"
	"pnode/planner/plan"
)

// numbers returns what of a run's specification decides its losses.
func numbers(run plan.RunSpec) ([]byte, error) {
	t := &run.Train
	t.CheckpointEvery, t.KeepCheckpoints, t.Replicas, t.Stages, t.Schedule = 0, 0, 0, 0, ""
	t.MinNodes, t.Voters, t.AwaitOwnerS = 0, "", 0
	b, err := json.Marshal(struct {
		Model any
		Data  plan.DataSpec
		Train plan.TrainSpec
	}{run.Model, run.Data, run.Train})
	return b, err
}

// compare trains the same without faults, to the last step of the report, and compares losses and weights. What replicas with local steps learn
// depends on when their rounds ended and on who counted: such a run is trained again by its log.
func (r *Report) compare(ctx context.Context, o Options, dirs []string) error {
	run, err := node.LoadRun(dirs[0])
	if err != nil {
		return err
	}
	if run.Train.Sync.Local {
		return r.recompute(ctx, o, dirs)
	}
	spec, err := numbers(run)
	if err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	last := r.Audit.Steps
	hash := sha256.Sum256(spec)
	dir := filepath.Join(o.Dir, fmt.Sprintf("fault-free-%x-%d", hash[:8], last))
	want, err := node.StoredState(dir, last)
	if err != nil {
		o.Tell(fmt.Sprintf("the run without faults, to step %d, in %s", last, dir))
		if err := reference(ctx, o, dir, last); err != nil {
			return err
		}
		if want, err = node.StoredState(dir, last); err != nil {
			return fmt.Errorf("chaos: the weights without faults: %w", err)
		}
	}
	if other, err := node.LoadRun(dir); err != nil {
		return err
	} else if also, err := numbers(other); err != nil || string(also) != string(spec) {
		return errors.Join(fmt.Errorf("chaos: the run without faults has another specification: %s and %s", spec, also), err)
	}
	if err := r.compareLosses(dir, dirs); err != nil {
		return err
	}
	for _, d := range dirs {
		got, err := node.StoredState(d, last)
		if errors.Is(err, checkpoint.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("chaos: the weights of step %d in %s: %w", last, d, err)
		}
		r.Weights++
		if !reflect.DeepEqual(got, want) {
			r.problem("the weights or the optimizer's state of step %d in %s differ from those without faults", last, d)
		}
	}
	if r.Weights == 0 {
		r.problem("no node has the checkpoint of step %d", last)
	}
	return nil
}

// recompute trains a run again by what its ledgers say of its log, and compares the model, losses, and messages of replicas.
func (r *Report) recompute(ctx context.Context, o Options, dirs []string) error {
	var telling sync.Mutex
	told := time.Now()
	again, err := node.Recompute(ctx, node.RecomputeOptions{Dirs: dirs, To: r.Audit.Steps, OnStep: func(done, of int) {
		telling.Lock()
		defer telling.Unlock()
		if time.Since(told) > reportEvery {
			told = time.Now()
			o.Tell(fmt.Sprintf("the run again by its log: step %d of %d", done, of))
		}
	}})
	if err != nil {
		return fmt.Errorf("chaos: train the run again by its log: %w", err)
	}
	r.Recomputed = &again
	for _, p := range again.Problems {
		r.problem("%s", p)
	}
	return nil
}

// compareLosses compares the commit of every step that any node computed, also of those that were redone.
func (r *Report) compareLosses(reference string, dirs []string) error {
	c, err := ledger.Read(reference)
	if err != nil {
		return err
	}
	want := map[plan.Step]ledger.Commit{}
	for _, e := range c.Entries {
		want[e.Step] = e.Commit
	}
	compared := map[plan.Step]bool{}
	for _, d := range dirs {
		c, err := ledger.Read(d)
		if err != nil {
			continue // the audit has told
		}
		said := c.Told
		for _, e := range c.Entries {
			said = append(said, ledger.Told{Committed: ledger.Committed{Generation: e.Work.Generation, Commit: e.Commit}})
		}
		for _, e := range said {
			w, known := want[e.Step]
			if !known {
				continue // redone steps after the last one
			}
			compared[e.Step] = true
			if w != e.Commit {
				r.Differ++
				r.problem("step %d of generation %d in %s has loss %v, without faults %v", e.Step, e.Generation, d, e.Loss(), w.Loss())
			}
		}
	}
	r.Compared = len(compared)
	return nil
}

// reference trains in one process on all cores, with a checkpoint after the last step, and stops then.
func reference(ctx context.Context, o Options, dir string, last plan.Step) error {
	steps, over := make(chan progress, 1024), make(chan struct{})
	defer close(over)
	args := append(append([]string{"train"}, o.trainArgs()...), "--checkpoint-every", fmt.Sprint(last))
	p, err := launch{on: here{}, binary: o.Binary, dir: dir, args: args, env: o.Env}.begin(over, steps)
	if err != nil {
		return err
	}
	defer p.kill()
	told := time.Now()
	for stopping := false; ; {
		select {
		case at := <-steps:
			if time.Since(told) > reportEvery {
				told = time.Now()
				o.Tell(fmt.Sprintf("without faults: step %d of %d", min(at.Step, last), last))
			}
			if at.Step < last || stopping {
				continue
			}
			stopping = true
			client, err := api.Dial(ctx, dir)
			if err != nil {
				return err
			}
			err = client.Stop(ctx)
			client.Close()
			if err != nil {
				return err
			}
		case <-p.ended:
			if !stopping {
				return fmt.Errorf("chaos: the run without faults ended: %s", lastLine(dir+logFile))
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
