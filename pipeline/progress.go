package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// How long a worker waits while nothing at all goes on with it.
const (
	leastPatience = 30 * time.Second
	patienceSteps = 10 // times the slowest of the newest steps
	newestSteps   = 8
	// firstPatience is for the first step of a generation: devices compile and caches fill.
	firstPatience = 10 * time.Minute
	// renewedPatience, and firstSteps times a step of before, are for that of a generation that goes on with a run.
	renewedPatience = 2 * time.Minute
	firstSteps      = 3 * patienceSteps
	// loadPatience is for state that a peer fetches before the first step, over whatever link it has.
	loadPatience = time.Hour
	// saveBytesPerS is what the slowest disk takes of a state on which the update after its save waits.
	saveBytesPerS = 16 << 20
	// Between two peers that wait for the same mute one, at least so much lies between their patience: see rank.
	leastStagger   = 5 * time.Second
	firstStagger   = time.Minute
	renewedStagger = 15 * time.Second
	// evaluationParts is how much longer an evaluation takes than the passes of one micro-batch: 8 forwards, in float32
	// once more where that is slow, beside a forward and a backward. Replicas that do not evaluate wait.
	evaluationParts = 16
	// pollEvery is how often a wait looks whether bytes come and go.
	pollEvery = 5 * time.Second
)

// Movement tells of messages on their way; *link.Session does.
type Movement interface {
	// Moved returns a count that grows when bytes come that the plan has sent around a step, and when a peer
	// takes bytes that were sent to it.
	Moved(step plan.Step) uint64
}

// progress watches over what a worker waits for. When nothing has gone on with the worker for its patience, the
// wait whose peer is most likely to be the cause ends with a fault of that peer.
type progress struct {
	exchange collective.Exchange
	self     plan.WorkerID
	loaded   func(plan.PeerID) bool // nil: all have
	saving   time.Duration          // how long an update may wait for a save
	usual    time.Duration          // what a step took in the generation before; 0: unknown

	mu      sync.Mutex // guards the rest
	program program    // that runs
	moved   time.Time  // when something went on last
	step    plan.Step
	begun   time.Time       // when the step began
	newest  []time.Duration // what steps took, at most newestSteps
	saved   plan.Step       // the newest step with a save
	count   uint64          // of Movement
	// computes is when the step began, or, of the first one, when the last peer was still loading.
	computes time.Time
}

func newProgress(c *Config, p program) *progress {
	return &progress{exchange: c.Exchange, self: c.Worker, loaded: c.Loaded, usual: c.Usual, program: p, saving: saveTime(p)}
}

// saveTime returns how long the state of the plan's largest stage takes to be read for a save.
func saveTime(p program) time.Duration {
	most := 0
	for _, pipe := range p.plan.Replicas {
		for _, place := range pipe.Stages {
			bytes := 0
			for l := place.Layers.First; l < place.Layers.End; l++ {
				bytes += LayerStateBytes(p.spec, l)
			}
			most = max(most, bytes)
		}
	}
	return time.Duration(most) * time.Second / saveBytesPerS
}

// begin notes that a step begins, of a program that may be another one than before.
func (p *progress) begin(step plan.Step, of program) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.step > 0 {
		p.newest = append(p.newest, now.Sub(p.computes))
		p.newest = p.newest[max(0, len(p.newest)-newestSteps):]
	}
	p.step, p.begun, p.computes, p.moved, p.program = step, now, now, now, of
}

// rest notes that a step is over and the next one does not begin yet.
func (p *progress) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest = append(p.newest, time.Since(p.computes))
	p.step = 0
}

// save notes that a step's state is saved: the next updates may wait until it is read.
func (p *progress) save(step plan.Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.saved = step
}

// move notes that something goes on.
func (p *progress) move() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved = time.Now()
}

// patience returns how long nothing may go on, and by how much more the next rank waits. Callers hold mu.
func (p *progress) patience() (least, stagger time.Duration) {
	if p.step <= p.program.plan.Start+1 {
		if p.usual > 0 {
			return max(renewedPatience, firstSteps*p.usual), max(renewedStagger, p.usual)
		}
		return firstPatience, firstStagger
	}
	slowest := time.Duration(0)
	if len(p.newest) > 0 {
		slowest = slices.Max(p.newest)
	}
	least, stagger = max(leastPatience, patienceSteps*slowest), max(leastStagger, slowest)
	if p.program.evaluatesIn(p.step) {
		least += slowest * evaluationParts / time.Duration(p.program.plan.Replicas[0].Micros)
	}
	if p.saved > 0 && p.step <= p.saved+2 {
		least += p.saving
	}
	return least, stagger
}

// rank returns after how many others a wait for a message ends. Where a peer is mute, those who wait for its
// messages make others wait: from parameters on along the pipeline, then between replicas, at the coordinator, for
// its commit, and in saves. Who waits for the mute one itself is to be the first to say so.
func (p *program) rank(t wire.Tag) int {
	deepest := 0
	for _, pipe := range p.plan.Replicas {
		deepest = max(deepest, len(pipe.Stages))
	}
	switch t.Kind {
	case wire.Activation:
		return int(t.Stage)
	case wire.Gradient:
		return len(p.plan.Replicas[t.Replica].Stages) - 1 - int(t.Stage)
	case wire.GatherPart:
		if layer, _, _ := collective.LayerOf(t); p.plan.InParts(layer) {
			return 0 // parameters, which the forwards of a step wait for
		}
		return deepest + 1
	case wire.TiedGrad:
		return deepest + 2
	case wire.KindReport:
		return deepest + 3
	case wire.KindCommit:
		return deepest + 4
	case wire.StatePart, wire.StateTaken:
		return deepest + 5
	default:
		return deepest
	}
}

// wait is one call that blocks for what a peer owes.
type wait struct {
	progress *progress
	peer     plan.PeerID
	tag      wire.Tag
	sends    bool // it waits for the peer to take something
	end      context.CancelCauseFunc
	timer    *time.Timer // guarded by progress.mu, like over
	over     bool
}

// await runs f, which waits for a message from a peer, or for the peer to take one, with a context that ends when
// nothing has gone on for too long. Its error is then the peer's fault.
func (p *progress) await(ctx context.Context, peer plan.PeerID, tag wire.Tag, sends bool, f func(context.Context) error) error {
	if p == nil || peer == p.self.Peer {
		return f(ctx)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	w := &wait{progress: p, peer: peer, tag: tag, sends: sends, end: end}
	p.mu.Lock()
	p.moved = time.Now()
	w.timer = time.AfterFunc(pollEvery, w.look)
	p.mu.Unlock()
	err := f(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	w.over = true
	w.timer.Stop()
	if err == nil {
		p.moved = time.Now()
		return nil
	}
	cause := context.Cause(ctx)
	if fault, ok := cause.(*plan.Fault); ok {
		return fault
	}
	if ctx.Err() != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause) // what ended it
	}
	return err
}

// poll counts bytes that come and go as movement. Callers hold mu.
func (p *progress) poll() {
	exchange, _, _ := plain(p.exchange)
	if m, ok := exchange.(Movement); ok {
		if n := m.Moved(p.step); n != p.count {
			p.count, p.moved = n, time.Now()
		}
	}
}

// look ends the wait when nothing has gone on for too long, and else looks again later.
func (w *wait) look() {
	p := w.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.over {
		return
	}
	p.poll()
	now := time.Now()
	least, stagger := p.patience()
	most := least + time.Duration(p.rankOf(w))*stagger
	idle, fault := now.Sub(p.moved), p.faultOf(w)
	if late := p.unloaded(); late != "" {
		idle, most, p.moved, p.computes = now.Sub(p.begun), loadPatience, now, now
		fault = &plan.Fault{Accused: late, Kind: plan.NoProgress, Step: w.tag.Step, Detail: fmt.Sprintf("it has not loaded its state in %s", plan.Duration(loadPatience))}
	}
	if idle >= most {
		w.end(fault)
		return
	}
	w.timer.Reset(min(most-idle, pollEvery))
}

// rankOf returns a wait's rank: sends stand still after everything that makes their peer wait.
func (p *progress) rankOf(w *wait) int {
	if w.sends {
		return p.program.rank(wire.Tag{Kind: wire.StatePart})
	}
	return p.program.rank(w.tag)
}

// faultOf returns what the peer of a wait owes.
func (p *progress) faultOf(w *wait) *plan.Fault {
	text := p.program.describe(w.tag)
	if w.sends {
		text = "it does not take " + text
	} else {
		text += " did not come"
	}
	idle := time.Since(p.moved).Round(time.Second)
	return &plan.Fault{Accused: w.peer, Kind: plan.NoProgress, Step: w.tag.Step, Detail: fmt.Sprintf("%s: nothing went on for %s", text, plan.Duration(idle))}
}

// unloaded returns a peer that has not loaded its state before the generation's first step, empty where all have.
func (p *progress) unloaded() plan.PeerID {
	if p.loaded == nil || p.step > p.program.plan.Start+1 {
		return ""
	}
	for _, peer := range p.program.plan.Peers() {
		if peer != p.self.Peer && !p.loaded(peer) {
			return peer
		}
	}
	return ""
}

// plain returns an exchange without what watches over it, and whether its waits are told to a device.
func plain(e collective.Exchange) (collective.Exchange, paced, bool) {
	if w, ok := e.(watched); ok {
		e = w.Exchange
	}
	p, ok := e.(paced)
	if ok {
		e = p.Exchange
	}
	return e, p, ok
}

// watched is an exchange whose calls end when nothing goes on.
type watched struct {
	collective.Exchange
	progress *progress
}

// Send waits for room.
func (e watched) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	return e.progress.await(ctx, to, f.Tag, true, func(ctx context.Context) error { return e.Exchange.Send(ctx, to, f) })
}

// Receive waits for a message.
func (e watched) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) (payload []byte, err error) {
	err = e.progress.await(ctx, from, tag, false, func(ctx context.Context) error {
		payload, err = e.Exchange.Receive(ctx, from, tag)
		return err
	})
	return payload, err
}

// Brought passes collective.Brought through.
func (e watched) Brought(from plan.PeerID, tag wire.Tag) plan.PeerID {
	return collective.Brought(e.Exchange, from, tag)
}
