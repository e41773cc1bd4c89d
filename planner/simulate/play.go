package simulate

import (
	"fmt"
	"maps"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner"
	"pnode/planner/departures"
	"pnode/planner/plan"
)

// Config holds what all runs of a comparison have in common.
type Config struct {
	Fleet Fleet
	// Input has the run and the model's costs, without members.
	Input planner.Input
	// Make is planner.Make within a context of the caller's.
	Make  func(planner.Input) (plan.Plan, plan.Reasons, error)
	Trace Trace
	// Constants are of whoever measured them.
	Constants Constants
	// Progress, if not nil, is told how far a run has come.
	Progress func(atNanos, endNanos int64)
}

// Simulator plays runs. It keeps the plans that it has made from one run to the next.
type Simulator struct {
	Config
	plans *plans
}

// New returns a simulator. Errors wrap ErrOptions.
func New(c Config) (*Simulator, error) {
	classes, err := classesOf(c.Fleet)
	if err != nil {
		return nil, err
	}
	return &Simulator{c, &plans{classes: classes, input: c.Input, make: c.Make}}, nil
}

// Searches returns how often the planner has searched for a plan.
func (s *Simulator) Searches() int { return s.plans.calls }

// phase says what a run does at a moment.
type phase uint8

const (
	waiting  phase = iota + 1 // for machines
	between                   // two phases, for no time
	stepping                  // a step is under way
	changing                  // steps stop for another plan
	saving                    // steps stop for a checkpoint
)

// run is a run that is played.
type run struct {
	*Simulator
	policy Policy
	queue  queue
	now    int64

	machines map[string]int // the slots of those that are there
	taken    []bool         // by slot
	tenants  []int          // by slot: how many machines have had it
	added    map[int]int64  // when the machine of a slot came
	living   [][]int        // by class: slots that can get a part, sorted
	draining map[int]bool
	held     map[int]layerSet // what machines have in memory
	history  departures.History

	plan, next *seated
	phase      phase
	since      int64 // when the phase began
	version    int
	// took is how long the step under way takes, useful how much of that counts, extended by how much losses made it longer.
	took, useful, extended int64
	carried, replan        bool
	joined                 bool
	owed                   int64 // stop of an answer, before the next change
	ended                  bool  // the plan has, for a loss: what is left of it is saved
	progress               progress
	result                 Result
}

// Play plays a run under a policy. Errors are the planner's.
func (s *Simulator) Play(policy Policy) (Result, error) {
	r := &run{
		Simulator: s, policy: policy, machines: map[string]int{}, added: map[int]int64{}, draining: map[int]bool{}, held: map[int]layerSet{},
		living: make([][]int, len(s.plans.classes.first)), phase: waiting,
	}
	r.result = Result{Policy: policy.Name(), Constants: s.Constants.Name, StartNanos: -1}
	kinds := map[Kind]happening{Add: machineAdded, Notice: machineNoticed, Remove: machineRemoved}
	for _, e := range s.Trace.Events {
		r.queue.push(queued{at: e.AtNanos, what: kinds[e.Kind], name: e.Node})
	}
	end := s.Trace.EndNanos
	for {
		at, ok := r.queue.next()
		if !ok || at > end {
			break
		}
		r.now = at
		if err := r.moment(at); err != nil {
			return Result{}, fmt.Errorf("simulate: at %d ms: %w", at/milli, err)
		}
		if s.Progress != nil {
			s.Progress(at, end)
		}
	}
	r.now = end
	r.finish()
	return r.result, nil
}

// moment takes in all that happens at one time, and then decides.
func (r *run) moment(at int64) error {
	ended := false
	var lost []int
	for next, ok := r.queue.next(); ok && next == at; next, ok = r.queue.next() {
		switch e := r.queue.pop(); e.what {
		case machineAdded:
			r.add(e.name)
		case machineReady:
			r.ready(e.slot, e.version)
		case machineNoticed:
			r.notice(e.name)
		case machineRemoved:
			lost = append(lost, r.remove(e.name))
		case phaseEnds:
			ended = ended || e.version == r.version
		case copyEnds:
			r.copied(e.version)
		}
	}
	if ended {
		r.endPhase()
	}
	r.lose(lost)
	for r.phase == between || r.phase == waiting {
		before := r.phase
		if err := r.begin(); err != nil {
			return err
		}
		if r.phase == before && before == waiting {
			break
		}
	}
	return nil
}

// begin decides what follows: another plan, or a step of the one that is there.
func (r *run) begin() error {
	counts := make([]int, len(r.living))
	for class, slots := range r.living {
		counts[class] = len(slots)
	}
	if r.plan != nil && !r.replan && !r.joined {
		r.beginStep()
		return nil
	}
	best, err := r.plans.of(counts)
	if err != nil {
		return err
	}
	switch forced := r.plan == nil || r.replan; {
	case best == nil && forced:
		if r.phase == between {
			r.handOver()
			r.enter(waiting)
			r.plan, r.next = nil, nil
			r.sample()
		}
	case forced:
		r.change(best)
	case best == nil || best == r.plan.planned || !r.pays(best):
		r.joined = false
		r.beginStep()
	default:
		r.change(best)
	}
	return nil
}

// handOver makes a checkpoint with copies where the run has to wait since machines leave that are still there.
func (r *run) handOver() {
	if r.plan != nil && r.saves().AtChange && r.progress.done > r.progress.newest.step && r.inMemory().covers(r.everything()) {
		r.progress.save(checkpoint{r.progress.done, copiesOf(r.plan, true)})
	}
}

// forever stands for the steps of a run that goes on for as long as its trace.
const forever = 1 << 40

// pays reports whether a better plan is taken, as a run's leader decides it.
func (r *run) pays(best *planned) bool {
	now, then := schedule.Nanos(r.plan.stepNanos), schedule.Nanos(best.stepNanos)
	if (now-then)*100 < now*planner.ReplanPercent {
		return false
	}
	s := seat(best, r.living, r.held)
	bytes, move := r.plans.moves(s, r.held)
	stop := r.policy.Change(r.Constants, r.saved(s), move)
	d := planner.Decision{Replan: true, Change: planner.Change{Now: now, Then: then, Bytes: bytes, Move: schedule.Nanos(r.Constants.move(move))}}
	r.clock()
	return d.Pays(planner.Outlook{Left: forever, Lasts: schedule.Nanos(r.history.Lasts(0)), Stops: []planner.Stop{{Load: schedule.Nanos(stop)}}}).Replan
}

// change stops the steps for another plan.
func (r *run) change(to *planned) {
	all := r.everything()
	if r.result.StartNanos >= 0 && !r.inMemory().covers(all) { // while nobody could go on, what was in memory was lost
		r.progress.back(!r.progress.newest.has(all.without(r.inMemory())))
	}
	s := seat(to, r.living, r.held)
	bytes, move := r.plans.moves(s, r.held)
	stop := r.owed + r.policy.Change(r.Constants, r.saved(s), move)
	if r.result.StartNanos < 0 {
		stop = 0 // the run has not begun
	} else {
		r.result.Changes++
		r.result.MovedBytes += bytes
	}
	r.owed, r.next, r.joined, r.replan, r.ended = 0, s, false, false, false
	r.enter(changing)
	r.until(stop)
}

// saved returns what policies know of a plan that takes over what machines have in memory.
func (r *run) saved(next *seated) Facts {
	f := next.facts
	f.SaveBytes = r.plans.saveBytes(r.held, r.ended)
	return f
}

// beginStep begins a step of the plan.
func (r *run) beginStep() {
	if r.result.StartNanos < 0 {
		r.result.StartNanos = r.now
	}
	share := min(max(r.policy.Habits(r.Constants, r.plan.facts).UsefulPermille, 1), 1000)
	r.useful, r.took, r.extended = r.plan.stepNanos, mulDiv(r.plan.stepNanos, 1000, share), 0
	r.carried = false
	r.enter(stepping)
	r.until(r.took)
}

// enter begins a phase. What the one before took is accounted for.
func (r *run) enter(p phase) {
	spent := r.now - r.since
	if r.result.StartNanos >= 0 {
		switch r.phase {
		case waiting:
			r.result.Lost.Waiting += spent
		case changing:
			r.result.Lost.Changing += spent
		case saving:
			r.result.Lost.Saving += spent
		}
	}
	r.phase, r.since = p, r.now
	r.version++
}

// until has the phase end after some time.
func (r *run) until(nanos int64) {
	r.version++
	r.queue.push(queued{at: r.now + max(nanos, 0), what: phaseEnds, version: r.version})
}

// endPhase ends a step, a change or a save.
func (r *run) endPhase() {
	switch r.phase {
	case changing:
		r.plan, r.next = r.next, nil
		r.held = map[int]layerSet{}
		for i, slot := range r.plan.slot {
			if slot >= 0 && !r.plan.posts[i].layers.empty() {
				r.held[slot] = r.plan.posts[i].layers
			}
		}
		if r.saves().AtChange && r.progress.done > r.progress.newest.step {
			r.progress.save(checkpoint{r.progress.done, copiesOf(r.plan, false)})
			r.progress.savedAt = -farFuture // its copies are due
		}
		r.enter(between)
		r.sample()
	case saving:
		r.progress.save(checkpoint{r.progress.done, nil})
		r.progress.savedAt = r.now
		r.enter(between)
	case stepping:
		r.result.Lost.Redundant += r.took - r.useful
		r.result.Lost.Extended += r.extended
		r.progress.commit(r.useful)
		r.enter(between)
		r.maybeSave()
	}
}

// saves returns how the policy saves now.
func (r *run) saves() Saving {
	r.clock()
	return r.policy.Saves(r.Constants, r.plan.facts, r.history.Rate(0))
}

// maybeSave makes a checkpoint after a step where one is due.
func (r *run) maybeSave() {
	s := r.saves()
	due := r.now-r.progress.savedAt >= s.EveryNanos
	if s.EverySteps > 0 {
		due = r.progress.done-r.progress.newest.step >= s.EverySteps
	}
	switch {
	case !due || r.progress.copying != nil || r.replan:
	case s.StopNanos > 0:
		r.enter(saving)
		r.until(s.StopNanos)
	default:
		r.progress.copyVersion++
		r.progress.copying = &checkpoint{r.progress.done, copiesOf(r.plan, true)}
		r.queue.push(queued{at: r.now + s.TookNanos, what: copyEnds, version: r.progress.copyVersion})
	}
}

// copied makes a checkpoint count whose copies are made.
func (r *run) copied(version int) {
	if r.progress.copying != nil && version == r.progress.copyVersion {
		r.progress.save(*r.progress.copying)
		r.progress.copying, r.progress.savedAt = nil, r.now
	}
}

// clock sets the clock of the history of departures.
func (r *run) clock() {
	r.history.Clock.Millis = (r.now - max(r.result.StartNanos, 0)) / milli
}

// everything returns all layers of the model.
func (r *run) everything() layerSet {
	all := newLayerSet(len(r.Input.Costs))
	all.add(plan.LayerRange{End: len(r.Input.Costs)})
	return all
}

// inMemory returns the layers that somebody has in memory.
func (r *run) inMemory() layerSet {
	all := newLayerSet(len(r.Input.Costs))
	for _, layers := range r.held {
		all = all.with(layers)
	}
	return all
}

// sample notes how many machines there are and what a step takes.
func (r *run) sample() {
	s := Sample{AtNanos: r.now, Machines: len(r.machines), Done: r.progress.done}
	if r.plan != nil && r.phase != waiting {
		s.StepNanos = r.plan.stepNanos
	}
	r.result.Samples = append(r.result.Samples, s)
}

// finish accounts for what is under way at the end of the trace.
func (r *run) finish() {
	if r.phase == stepping {
		spent := r.now - r.since
		r.result.UnderWayNanos = mulDiv(r.useful, spent, max(r.took+r.extended, 1))
		extended := mulDiv(r.extended, spent, max(r.took+r.extended, 1))
		if r.took == r.useful { // nothing of it is redundant
			extended = spent - r.result.UnderWayNanos
		}
		r.result.Lost.Extended += extended
		r.result.Lost.Redundant += spent - extended - r.result.UnderWayNanos
	}
	r.sample()
	r.enter(between)
	for _, slot := range slices.Sorted(maps.Keys(r.added)) {
		r.result.MachineNanos += r.now - r.added[slot]
	}
	r.result.close(r.progress, r.now, r.Input.Run)
}
