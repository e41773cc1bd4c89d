package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Worker builds, runs and saves what a plan has on one device. It belongs to one goroutine.
type Worker struct {
	program
	cfg    Config
	stages []*StageRuntime // in the order of replicas and stages
	// shadows are, in the same order, the float32 shadows of replica 0's stages, where it is not in
	// float32 throughout; shadowErr says why one here cannot be had.
	shadows   []*StageRuntime
	shadowErr error
	queue     kernels.Queue
	squares   kernels.Buffer // results of SumSquares for a layer
	opt       Optimizer
	skipped   int // by how many more updates loss scaling has skipped than were made
	suspects  map[suspect]int
	progress  *progress
	loaded    bool // the stages have all of the state of the plan's start, or of a later step
	moments   background
	open      *stepRun // the step that is not committed yet; nil between two
	validator validator
	local     *localSteps // nil: all replicas make every step together
	// still is held while the state of the stages or the program changes, and while a Held reads it. taken is the newest commit
	// that was applied, following the schedule that it named, until the program has it. unmeasured says that no worker has shadows any more.
	// updated is closed, and replaced, with each update.
	still      sync.Mutex
	taken      wire.Commit
	following  string
	unmeasured bool
	updated    chan struct{}
}

// New checks the plan against the run and allocates everything that the steps will need: after New
// no step allocates on the device. It takes over what Config.From has of the state, and closes that.
func New(cfg Config) (*Worker, error) {
	defer cfg.From.Close()
	p, err := newProgram(cfg.Run, cfg.Plan, cfg.Worker)
	if err != nil {
		return nil, err
	}
	if cfg.NameOf == nil {
		cfg.NameOf = plan.PeerID.Short
	}
	if cfg.Local != nil {
		p.local = cfg.Local.Plan.Local
	}
	w := &Worker{program: p, cfg: cfg, opt: Optimizer{train: cfg.Run.Train}, progress: newProgress(&cfg, p), validator: validator{secondTry: cfg.SecondTry}, suspects: map[suspect]int{}, unmeasured: cfg.Unmeasured, updated: make(chan struct{})}
	if cfg.Replica != 0 {
		w.cfg.Exchange = asReplica(cfg.Exchange, cfg.Replica)
	}
	w.cfg.Exchange = watched{w.cfg.Exchange, w.progress}
	if err := w.build(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *Worker) build() (err error) {
	from, donors := w.cfg.From, w.cfg.From.donors(w.plan)
	w.cfg.From = nil
	if err := w.checkMemory(donors); err != nil {
		return err
	}
	for _, at := range w.plan.StagesOf(w.worker) {
		h, err := newStageRuntime(&w.cfg, &w.program, at, donors[at])
		w.stages = append(w.stages, h)
		if err != nil {
			return err
		}
	}
	if w.squares, err = w.cfg.Device.Alloc(kernels.F32, int(w.squaresBytes()/4)); err != nil {
		return fmt.Errorf("pipeline: %w", err)
	}
	if w.queue, err = w.cfg.Device.NewQueue(); err != nil {
		return err
	}
	if err := w.warmQueues(); err != nil {
		return err
	}
	if w.local, err = newLocalSteps(w, from); err != nil {
		return err
	}
	return w.prepare()
}

// ID returns which worker of the plan it is.
func (w *Worker) ID() plan.WorkerID { return w.worker }

// TookOver returns how many layers here have their state from Config.From.
func (w *Worker) TookOver() (layers int) {
	for _, h := range w.stages {
		for _, l := range h.layers() {
			if h.stack.TookOver(l) {
				layers++
			}
		}
	}
	return layers
}

// Run loads the state of the stages here and trains from the plan's start step to the run's last one,
// or until a commit says stop. With Config.Replay it computes the steps of these commits again, with Config.Taken it first does what that
// commit asks for besides the update. Saves begin under the context saves and may go on after Run; Saved
// waits for them. The error of a cancelled ctx is returned wrapped.
func (w *Worker) Run(ctx, saves context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer func() { // until nothing of a cancelled step is under way
		cancel()
		if a := w.validator.agreement; a != nil {
			<-a.done
		}
		w.local.end()
		_ = w.moments.wait() // of a step that has failed before it came to them
		w.still.Lock()
		defer w.still.Unlock()
		_ = w.validator.rollBack() // the stages say whether they are torn
		for _, h := range w.stages {
			_ = h.gathering.wait()
			h.torn = h.offload.settle() != nil || h.torn
			h.offload.stop()
		}
	}()
	if err := w.loadAll(ctx); err != nil {
		return err
	}
	name := fmt.Sprintf("worker %d: %s of %s", w.number, w.worker.Device, w.cfg.NameOf(w.worker.Peer))
	w.cfg.Trace.Name(w.number, name, w.worker.Peer)
	if w.moments == nil {
		w.cfg.OnLoaded()
	}
	for _, h := range w.stages {
		h.offload.start()
	}
	if err := w.repeatTaken(ctx); err != nil {
		return err
	}
	if taken := w.cfg.Taken; taken.Save {
		for _, h := range w.stages {
			if err := w.save(saves, h, w.plan.Start, taken.Stop); err != nil {
				return err
			}
		}
	}
	if w.cfg.Taken.Stop {
		return nil
	}
	if err := w.local.meet(ctx); err != nil {
		return err
	}
	for step := w.plan.Start + 1; step <= w.spec.Train.Steps; step++ {
		stop, err := w.trainStep(ctx, saves, step)
		if err == nil && !stop {
			step, stop, err = w.local.merge(ctx, saves, step)
		}
		if err != nil {
			return fmt.Errorf("pipeline: generation %d step %d on %s of %s: %w",
				w.plan.Generation, step, w.worker.Device, w.cfg.NameOf(w.worker.Peer), err)
		}
		if stop {
			return nil
		}
	}
	return w.closingEvaluation(ctx)
}

// newStepRun begins a step.
func (w *Worker) newStepRun(ctx context.Context, step plan.Step) *stepRun {
	s := &stepRun{
		program: w.program, cfg: &w.cfg, queue: w.queue, squares: w.squares, opt: w.opt, step: step, samples: samplesOf(w, step), begun: time.Now(),
		stages: newStageRuns(w.stages), shadows: newStageRuns(w.shadows), blind: w.shadowErr != nil,
		losses: map[plan.Micro][]float32{}, ctx: ctx, cancel: func(error) {}, progress: w.progress,
		overflow: &overflow{}, secondTry: w.validator.secondTry && w.validator.optimistic == nil,
	}
	s.time = timeline{program: &s.program, step: step, trace: w.cfg.Trace, moves: w.progress}
	w.progress.begin(step, w.program)
	return s
}

// trainStep runs one optimizer update and reports whether the run stops after it.
func (w *Worker) trainStep(ctx, saves context.Context, step plan.Step) (stop bool, err error) {
	for _, h := range w.stages {
		if err := h.saving.poll(); err != nil {
			return false, err
		}
	}
	s, evaluated, stop, err := w.compute(ctx, saves, step)
	if stop || err != nil {
		return stop, err
	}
	squares, err := s.sumSquares()
	if err != nil {
		return false, err
	}
	if err := w.moments.wait(); err != nil { // a step that is reported may be committed, and its update needs them
		return false, err
	}
	if err := account(s, squares); err != nil {
		return false, err
	}
	if w.plan.PostValidation && !s.replays() {
		agreement := agreeLater(ctx, s, evaluated)
		w.validator.agreement = agreement
		if w.validator.mayApply(s) {
			w.still.Lock()
			defer w.still.Unlock()
			return false, w.validator.apply(ctx, s)
		}
		if err := agreement.wait(ctx, s); err != nil {
			return false, err
		}
		return w.settle(ctx, saves, s, agreement.commit)
	}
	commit, err := s.agree(ctx, evaluated)
	if err != nil {
		return false, err
	}
	return w.settle(ctx, saves, s, commit)
}

// compute runs the passes of a step. Where the step before is an optimistic one, its commit comes meanwhile; stop says that the run ends with it.
func (w *Worker) compute(ctx, saves context.Context, step plan.Step) (s *stepRun, e evaluation, stop bool, err error) {
	s = w.newStepRun(ctx, step)
	before := w.validator.optimistic
	if before == nil {
		w.open = s
		if !s.replays() {
			if e, err = s.evaluate(); err != nil {
				return s, e, false, err
			}
		}
		return s, e, false, s.run(ctx)
	}
	settle := func() (bool, error) { return w.settle(ctx, saves, before.stepRun, before.agreement.commit) }
	before.confirm = func() error {
		_, err := settle()
		return err
	}
	s.before = before
	err = s.run(ctx)
	if !errors.Is(err, errSecondTry) {
		if w.validator.optimistic == nil {
			w.open = s
		}
		return s, e, false, err
	}
	if stop, err = settle(); stop || err != nil {
		return s, e, stop, err
	}
	return w.compute(ctx, saves, step)
}

// settle does what the commit of a step asks for, and reports whether the run stops after it.
func (w *Worker) settle(ctx, saves context.Context, s *stepRun, commit wire.Commit) (stop bool, err error) {
	step, optimistic := s.step, w.validator.optimistic
	if err := w.countSkipped(s, commit); err != nil {
		return false, err
	}
	if err := w.update(ctx, s, commit); err != nil {
		return false, err
	}
	w.open = nil
	w.validator.settled(s, commit)
	w.local.settled(commit)
	s.gatherAll(ctx, commit)
	if commit.Save {
		w.progress.save(step)
		err = s.allGathered()
		for _, h := range w.stages {
			if err == nil {
				err = w.save(saves, h, step, commit.Stop)
			}
		}
	}
	if commit.HeldOut != nil && commit.HeldOutF32 == nil {
		w.shadows = nil // some stage has none; all workers learn the same
	}
	end := time.Now()
	if optimistic != nil {
		end = optimistic.appliedAt
	}
	s.time.span(schedule.Action{Op: schedule.Step}, s.settling, end)
	for _, h := range s.stages {
		h.logCodecs(w.cfg.Log, step, h.times)
	}
	r := resultOf(s, commit)
	r.Optimistic, r.RolledBack = optimistic != nil, optimistic != nil && commit.GradScale != 1
	w.cfg.OnStep(r) // saved or not: what is left of the plan goes on from this step
	if err == nil && commit.Next != "" && !commit.Stop {
		err = w.reschedule(commit.Next)
	}
	return commit.Stop, err
}

// resultOf returns the account of a committed step.
func resultOf(s *stepRun, commit wire.Commit) StepResult {
	r := StepResult{
		Step: s.step, Loss: commit.Loss, HeldOut: commit.HeldOut, HeldOutF32: commit.HeldOutF32, Norm: commit.Norm,
		Schedule: s.plan.ScheduleChoice(), Total: time.Since(s.begun),
	}
	for _, h := range s.stages {
		r.Stages = append(r.Stages, h.times)
		r.Added = append(r.Added, h.added)
	}
	return r
}

// closingEvaluation follows the last update: the coordinator sends every worker the held-out loss of
// the finished model in a commit that updates nothing. Where replicas make local steps one of them evaluates what all have.
func (w *Worker) closingEvaluation(ctx context.Context) error {
	if w.cfg.Replica != w.local.evaluator() {
		return nil
	}
	s := w.newStepRun(ctx, w.spec.Train.Steps+1)
	e, err := s.evaluate()
	if err != nil {
		return err
	}
	commit := wire.Commit{HeldOut: e.heldOut, HeldOutF32: e.f32}
	if s.coordinates() {
		if commit, err = s.repeatClosing(w.cfg.Committed, commit); err == nil {
			err = s.checkHeldOut(s.step, commit)
		}
		if err == nil {
			err = s.sendCommit(ctx, commit)
		}
	} else {
		commit, err = s.receiveCommit(ctx, func(c wire.Commit) error { return s.checkClosing(s.step, c) })
	}
	if err != nil {
		return err
	}
	w.cfg.OnStep(StepResult{Step: w.spec.Train.Steps, HeldOut: commit.HeldOut, HeldOutF32: commit.HeldOutF32, Final: true})
	return nil
}

// reschedule takes the schedule that a commit names, between two steps: all workers take it after the
// same commit. Stages stay where they are, with as many slots and partial sums as the new program needs.
func (w *Worker) reschedule(text string) error {
	p, err := w.with(text)
	if err != nil {
		return err
	}
	for _, h := range w.stages { // into memory that is about to get another shape
		if err := h.gathered(w.queue, w.opt); err != nil {
			return err
		}
	}
	if err := w.queue.Sync(); err != nil {
		return err
	}
	for _, h := range w.stages {
		h.freeSpare() // plans do not count with it
	}
	for _, h := range w.stages {
		h.use = p.list.Use(w.number, h.Replica, h.Stage)
		passes := model.Passes{Slots: h.use.Slots, Segments: h.use.Segments, Split: h.use.Split, Partials: p.spec.Train.Sums().Partials(p.share(h.Replica))}
		if err := h.stack.Resize(passes); err != nil {
			return fmt.Errorf("pipeline: %w", err)
		}
	}
	w.still.Lock()
	w.program, w.following = p, ""
	w.still.Unlock()
	return w.prepare()
}

// Saved waits for the saves in progress; their errors come out here or at the next step.
func (w *Worker) Saved() error {
	var errs []error
	for _, h := range w.stages {
		errs = append(errs, h.saving.wait())
	}
	return errors.Join(errs...)
}

// Close frees the device memory. Run and Saved must have returned.
func (w *Worker) Close() {
	if w.queue != nil {
		w.queue.Close()
	}
	if w.squares != nil {
		w.squares.Free()
	}
	for _, h := range w.stages {
		h.close()
	}
	w.local.close()
}
