package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"pnode/kernels"
	"pnode/pipeline/gather"
	"pnode/pipeline/gather/seals"
	"pnode/pipeline/meeting"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Local has what a replica with local steps needs besides a plan of its own. Config.Replica says which one it is.
type Local struct {
	// Run and Plan are of all replicas.
	Run  plan.RunSpec
	Plan plan.Plan
	// Lineage is that of the log in which the plan was made.
	Lineage string
	// Rounds is the log.
	Rounds gather.Rounds
	// Processor makes the outer steps: its memory is the node's.
	Processor kernels.Device
	// Keys are this node's, for the messages of rounds.
	Keys seals.Keys
	// OnOuterStep is called after each of them.
	OnOuterStep func(gather.Outcome)
}

// localSteps is a worker's part in outer steps. Its methods take nil: all replicas make every step together.
type localSteps struct {
	*Local
	worker   *Worker
	gatherer *gather.Gatherer
	from     plan.Step                 // after which the round under way began
	stream   plan.Stream               // of the round under way
	ahead    bool                      // the messages of the round before travel
	arrives  plan.Step                 // the inner step after which the outer one is due of the round that the replica has left; 0: it has left none
	raw      bool                      // the parameters are those of an inner step, which no other replica has
	report   wire.OuterReport          // of the inner steps of the round so far
	merges   bool                      // the round ends with the newest inner step
	first    plan.Replica              // that has the newest outer step's parameters
	loaded   bool                      // the gatherer has the state of the plan's start, or of a later step
	kept     map[int]bool              // layers whose state the gatherer has from Config.From
	unread   map[*StageRuntime]*unread // of the gatherer's state, by the save in progress
}

// newLocalSteps allocates what a worker's outer steps need; nil where its replica makes none.
func newLocalSteps(w *Worker, from *Retained) (*localSteps, error) {
	l := w.cfg.Local
	switch {
	case l == nil:
		return nil, nil
	case w.plan.Replicas[0].Own != nil && w.plan.Start == 0:
		return nil, fmt.Errorf("%w: replica %d begins with the state of a replica, which none has before the first step", ErrBadConfig, w.cfg.Replica)
	case w.cfg.Replay != nil || w.cfg.Taken.Step != 0 || w.cfg.Committed != nil:
		return nil, fmt.Errorf("%w: replica %d makes local steps, of which nobody repeats any", ErrBadConfig, w.cfg.Replica)
	}
	raw, _, _ := plain(w.cfg.Exchange)
	if n, ok := raw.(numbered); ok {
		raw = n.Exchange
	}
	g, err := gather.New(gather.Config{
		Run: l.Run, Plan: l.Plan, Lineage: l.Lineage, Replica: w.cfg.Replica, Worker: w.worker,
		Processor: l.Processor, Exchange: raw, Rounds: l.Rounds, Keys: l.Keys,
	})
	if err != nil {
		return nil, err
	}
	made := &localSteps{Local: l, worker: w, gatherer: g, kept: map[int]bool{}, unread: map[*StageRuntime]*unread{}}
	made.takeOver(from)
	return made, nil
}

// meet begins the first round of a plan: its outer steps begin with the parameters that all replicas have, and with what outer steps before have left.
func (l *localSteps) meet(ctx context.Context) error {
	if l == nil || l.worker.plan.Start >= l.worker.spec.Train.Steps {
		return nil
	}
	if err := l.gatherer.Load(func(layer int, s meeting.State) error { return l.load(ctx, layer, s) }); err != nil {
		return err
	}
	w := l.worker
	l.loaded, l.from, w.before, w.met = true, w.plan.Start, w.plan.Start-1, w.plan.Start
	l.stream = l.Plan.Stream.Full(l.from, l.Run.Train.Micros)
	l.gatherer.Begin(ctx, l.from)
	return nil
}

// samples says which micro-batches of the run a worker's micro-batches of a step are: its own, or some in the places of a stream where replicas with local
// steps train on blocks of what is left, or have left something.
type samples struct {
	step   plan.Step
	first  plan.Micro
	moved  bool // the stream says which
	stream plan.Stream
	place  int64 // in the stream, of the first one
	micros int   // of a step of the run
}

func samplesOf(w *Worker, step plan.Step) samples {
	out := samples{step: step, first: w.cfg.First, stream: w.plan.Stream, micros: w.spec.Train.Micros}
	out.moved = out.stream.Fresh != 0
	out.place = int64(step-w.plan.Start-1) * int64(out.micros)
	if l := w.local; l != nil {
		pipe := l.Plan.Replicas[w.cfg.Replica]
		block := pipe.Block(l.Plan.Local.RoundEnd(l.from, l.Run.Train.Steps) - l.from)
		out.moved, out.stream, out.micros, out.place = true, l.stream, l.Run.Train.Micros, block.First+int64(step-l.from-1)*int64(pipe.Micros)
	}
	return out
}

// of returns which micro-batch of the run one of the worker's is.
func (s samples) of(micro plan.Micro) (plan.Step, plan.Micro) {
	if !s.moved {
		return s.step, s.first + micro
	}
	return s.stream.Sample(s.place+int64(micro), s.micros)
}

// settled takes in an inner step.
func (l *localSteps) settled(c wire.Commit) {
	if l != nil {
		if c.HeldOut != nil {
			l.report.HeldOut, l.report.HeldOutF32 = c.HeldOut, c.HeldOutF32
		}
		l.raw, l.report.Losses, l.merges = true, append(l.report.Losses, c.Loss), c.Merge
	}
}

// evaluator returns which replica evaluates the finished model: the first one that has it.
func (l *localSteps) evaluator() plan.Replica {
	if l == nil {
		return 0
	}
	return l.first
}

// apart reports whether the parameters are not those of a step of the run.
func (l *localSteps) apart() bool { return l != nil && l.raw }

// end ends a round under way.
func (l *localSteps) end() {
	if l != nil {
		l.gatherer.End()
	}
}

// close frees the memory.
func (l *localSteps) close() {
	if l != nil {
		l.gatherer.Close()
	}
}

// merge makes the outer step that is due after an inner one, if any, and returns the step that the worker is at: other replicas may have made more
// inner steps. It reports whether the plan ends there.
func (l *localSteps) merge(ctx, saves context.Context, step plan.Step) (at plan.Step, stop bool, err error) {
	if l == nil || !l.merges && step != l.arrives {
		return step, false, nil
	}
	l.worker.progress.rest() // the log says who is waited for
	began := time.Now()
	if l.merges {
		err = l.leave(ctx, step)
	}
	due := step == l.arrives
	var made gather.Outcome
	if err == nil && due {
		made, err = l.outerStep(ctx, step)
	}
	if err != nil {
		return step, false, err
	}
	if _, p, ok := plain(l.worker.cfg.Exchange); ok {
		p.waited(began)
	}
	if !due {
		return step, false, nil
	}
	if at, stop, err = l.arrive(saves, step, made); err == nil && !made.Last && !stop {
		l.gatherer.Begin(ctx, made.To)
	}
	return at, stop, err
}

// leave ends the replica's part of the round with an inner step. Where the plan has messages travel while inner steps go on, these are of the next round.
func (l *localSteps) leave(ctx context.Context, step plan.Step) error {
	w, last := l.worker, l.Run.Train.Steps
	if err := l.isRead(ctx); err != nil {
		return err
	}
	due := w.cfg.Replica == 0 && w.cfg.Due != nil && w.cfg.Due(step)
	if err := l.gatherer.Offer(l.report, due, l.read); err != nil {
		return err
	}
	l.report, l.merges, l.arrives = wire.OuterReport{}, false, step
	at := l.Plan.Local.MergedAt(step, last)
	if l.ahead = at > step && step == l.Plan.Local.RoundEnd(l.from, last); !l.ahead {
		return nil
	}
	var taken []plan.MicroRange // by all replicas, or else the plan ends with the outer step
	for _, pipe := range l.Plan.Replicas {
		taken = append(taken, pipe.Block(step-l.from))
	}
	l.from, l.stream, l.arrives = step, l.stream.Without(taken), at
	return nil
}

// outerStep makes the outer step of the round that the replica has left. It is never made sooner, not even where the log has it as the plan's last, so that inner steps until then
// do not count: moments have seen these, and how many they have seen must not depend on timing.
func (l *localSteps) outerStep(ctx context.Context, step plan.Step) (made gather.Outcome, err error) {
	if err := l.isRead(ctx); err != nil {
		return made, err
	}
	for _, h := range l.worker.stages {
		if err := h.isRead(ctx); err != nil {
			return made, err
		}
	}
	if made, err = l.gatherer.Merge(ctx, l.ahead, l.read, l.write); err != nil || !l.ahead || made.Last || made.Parts[l.worker.cfg.Replica].Steps == 0 {
		return made, err
	}
	left := made.Stream.Full(made.To, l.Run.Train.Micros)
	if made.To != l.from || left.Fresh != l.stream.Fresh || !slices.Equal(left.Given, l.stream.Given) {
		return made, fmt.Errorf("%w: it is to step %d and leaves %v, inner steps since step %d were on %v", gather.ErrOuterStep, made.To, left, l.from, l.stream)
	}
	made.Meanwhile = step - made.To
	return made, nil
}

// arrive goes on from an outer step.
func (l *localSteps) arrive(saves context.Context, step plan.Step, made gather.Outcome) (at plan.Step, stop bool, err error) {
	w := l.worker
	if made.Parts[w.cfg.Replica].Steps == 0 {
		return step, true, nil // nobody goes on from what it has learned
	}
	at = made.To + made.Meanwhile
	if err := l.goesOnFrom(at); err != nil {
		return step, false, err
	}
	if made.Meanwhile == 0 { // what it has made since is left out
		l.raw, l.report, l.from, l.stream = false, wire.OuterReport{}, made.To, made.Stream.Full(made.To, l.Run.Train.Micros)
	}
	l.arrives, l.first, w.before, w.met = 0, made.Counted()[0], w.met, at
	l.OnOuterStep(made)
	for _, h := range w.stages {
		if !made.Save {
			break
		}
		w.progress.save(made.To)
		if err := l.save(saves, h, made); err != nil {
			return at, false, err
		}
	}
	return at, made.Last && made.To < w.spec.Train.Steps, nil
}

// goesOnFrom has the stages at a step, with the parameters that were written.
func (l *localSteps) goesOnFrom(step plan.Step) error {
	w := l.worker
	w.still.Lock()
	defer w.still.Unlock()
	for _, h := range w.stages {
		h.step = step
		h.stack.RoundWeights(w.queue, w.opt.rounding(step))
	}
	return w.queue.Sync()
}

// isRead waits until saves in progress have what they need of the gatherer's state.
func (l *localSteps) isRead(ctx context.Context) error {
	for _, save := range l.unread {
		if err := save.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// trained returns the trained parameters of a layer here, and the stage that has them.
func (l *localSteps) trained(layer int) (*StageRuntime, kernels.View) {
	for _, h := range l.worker.stages {
		if h.place.Layers.Contains(layer) {
			params, frozen := h.stack.Params(layer), l.worker.spec.Model.FrozenLen(layer)
			return h, params.Slice(frozen, params.Len-frozen)
		}
	}
	panic(fmt.Sprintf("pipeline: layer %d is not here", layer))
}

// read copies the trained parameters of a layer from the device.
func (l *localSteps) read(layer int, params []float32) error {
	h, v := l.trained(layer)
	return h.reductions.run(&transfer{do: func(q kernels.Queue) { q.Read(kernels.Float32Bytes(params), v) }})
}

// write copies them to the device.
func (l *localSteps) write(layer int, params []float32) error {
	h, v := l.trained(layer)
	return h.reductions.run(&transfer{do: func(q kernels.Queue) { q.Write(v, kernels.Float32Bytes(params)) }})
}
