package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pnode/checkpoint"
	"pnode/kernels"
	"pnode/node/checkpointer"
	"pnode/node/config"
	"pnode/node/generation"
	"pnode/node/gossip"
	"pnode/node/leader"
	"pnode/node/monitor"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// switchTo ends the running generation and begins the state's plan.
func (l *loop) switchTo(ctx context.Context, state consensus.State) {
	l.stopGeneration(generation.ErrReplaced)
	held := l.remains.HandOver(state.Plan)
	l.remains, l.completed = nil, false
	l.monitor.Begin(state)
	l.ledger.Plan(state.Plan, state.Reasons)
	l.restorer.Begin(state)
	if !state.Plan.Places(l.self) {
		for _, w := range held {
			w.Close()
		}
		l.enter(Waiting)
		return
	}
	l.enter(Loading)
	l.generation, l.loading = generation.Start(ctx, l.parts, state, held), true
}

// stopGeneration ends the running generation, if there is one, and waits for it.
func (l *loop) stopGeneration(cause error) {
	if l.generation == nil {
		return
	}
	err := l.generation.Stop(cause)
	if err != nil && !errors.Is(err, cause) {
		l.log.Info("generation ended", "generation", l.generation.State().Plan.Generation, "cause", err)
	}
	l.monitor.Interruption.End(l.generation.State(), err == nil, time.Now())
	l.remains, l.generation = l.generation.Remains(err), nil
}

// ended takes in the end of the running generation. It returns what no other plan can cure: this
// node gives up, the others go on without it.
func (l *loop) ended(err error) error {
	state, given := l.raft.State(), l.generation.State().Plan.Generation
	l.monitor.Interruption.End(state, err == nil, time.Now())
	l.remains, l.generation = l.generation.Remains(err), nil
	switch {
	case err == nil:
		l.completed = true
		l.remains.Tell()
		l.enter(Waiting) // for the next plan, or the end
		return nil
	case errors.Is(err, checkpoint.ErrDiskFull):
		newest := plan.Step(0)
		if state.StopWanted || !othersActive(state, l.self) { // else the others go on from it
			newest = l.monitor.NewestStep()
		}
		return withoutRoom(err, state, newest, l.self, l.dir)
	case errors.Is(err, kernels.ErrOutOfMemory),
		errors.Is(err, kernels.ErrUnsupported), errors.Is(err, pipeline.ErrBadConfig):
		return err
	case errors.Is(err, checkpointer.ErrNoChunks) && !othersActive(state, l.self) && len(state.Older) == 0:
		// Nobody else is there to wait for, and nothing to go back to.
		if !leader.OnlyHolder(state, l.self) {
			return err
		}
		l.log.Error("no way back to the checkpoint", "cause", err)
		return marked{fmt.Errorf("node: the only checkpoint, of step %d, is damaged and no other node holds a copy: bring %s back from a backup and use --resume, or train again with another --dir, from step 0 with the settings of before or from a model of yours with --init",
			state.Checkpoint.Step, storeDir(l.dir)), err}
	}
	l.monitor.SetStalled(given, err, errors.Is(err, checkpointer.ErrNoChunks), l.remains.Left())
	if lost := (generation.LostPeerError{}); !errors.As(err, &lost) {
		l.tasks.check.start(&l.group, l.checkDevices)
	}
	l.log.Info("gave the generation up, waiting for a new plan", "generation", given, "cause", err)
	l.enter(Waiting)
	l.remains.Tell()
	return nil
}

// withoutRoom adds to the end of a node whose disk is full from where the run goes on, and by which command. Steps up to newest are computed
// again; 0 is none.
func withoutRoom(err error, state consensus.State, newest plan.Step, self plan.PeerID, dir string) error {
	safe := "no checkpoint was made yet"
	switch {
	case state.Checkpoint.Step > 0:
		safe = monitor.RestText(state, newest)
	case newest > 0:
		safe += fmt.Sprintf(", and steps 1 to %d are computed again", newest)
	}
	return fmt.Errorf("%w; %s. When there is room go on with `%s`", err, safe, config.WayBack(dir, state.Owner(self)))
}

// reporter tells the monitor, and the other members, what happens in a generation.
type reporter struct {
	monitor *monitor.Monitor
	state   func() consensus.State
	send    func() // a heartbeat
}

func (r reporter) Step(result pipeline.StepResult) { r.monitor.Step(result) }

func (r reporter) Counted(steps []pipeline.StepResult) { r.monitor.Counted(steps) }

func (r reporter) Retained(stages []gossip.RetainedStage) {
	r.monitor.SetRetained(stages)
	r.send()
}

func (r reporter) Released() { r.monitor.SetRetained(nil) }

func (r reporter) Salvaging(replays plan.Step) {
	r.monitor.Interruption.Salvage(replays, time.Now())
}

func (r reporter) Replaying(step plan.Step) { r.monitor.Interruption.Replaying(step) }

func (r reporter) Replayed() { r.monitor.Interruption.Replayed(time.Now()) }

func (r reporter) Substituted(s consensus.Substitute) {
	r.monitor.Interruption.Substitute(r.state(), s, r.monitor.Self, time.Now())
}
