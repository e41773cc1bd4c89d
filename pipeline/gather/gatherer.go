package gather

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"pnode/kernels"
	"pnode/pipeline/collective"
	"pnode/pipeline/compress"
	"pnode/pipeline/gather/seals"
	"pnode/pipeline/meeting"
	"pnode/pipeline/outer"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Errors of this package.
var (
	// ErrConfig is wrapped by errors about what no plan with local steps has.
	ErrConfig = errors.New("gather: bad settings")
	// ErrOuterStep is wrapped by errors about an outer step of the log that does not fit the round.
	ErrOuterStep = errors.New("gather: this outer step is not of the round")
)

// Rounds is the log, as a replica's workers see it. Its methods may be called concurrently.
type Rounds interface {
	// Closed reports whether the round under way ends with each replica's next inner step.
	Closed() bool
	// Have takes from a replica's coordinator what has come so far, and what shows that, by replica as g.Parts. It returns at once. The log is told the
	// first time that nothing of a replica is missing which is waited for.
	Have(g plan.Gathered, shown []seals.Exhibit)
	// Found takes in what another replica has sent in the round after a step that no honest one does: its messages are lacking.
	Found(from plan.Step, f plan.Fault)
	// Merged waits for the outer step that ends the round after a step.
	Merged(ctx context.Context, from plan.Step) (plan.Merged, error)
}

// Config says whose gatherer it is.
type Config struct {
	// Run and Plan are of all replicas.
	Run  plan.RunSpec
	Plan plan.Plan
	// Lineage is that of the log in which the plan was made, see seals.Round.
	Lineage string
	Replica plan.Replica
	Worker  plan.WorkerID
	// Processor makes the outer steps: its memory is the node's.
	Processor kernels.Device
	// Exchange leads to other replicas too, and leaves the replicas in tags as they are.
	Exchange collective.Exchange
	Rounds   Rounds
	// Keys seals what the worker sends, and checks what others have sealed.
	Keys seals.Keys
}

// Gatherer is a worker's part in rounds. It belongs to one goroutine.
type Gatherer struct {
	Config
	codec       compress.Codec
	coordinator plan.WorkerID // of the replica
	stages      []*stage
	round       *round // under way; nil: none is
	size        int    // of pieces
	first       seals.Round
}

// stage is one of the worker's.
type stage struct {
	plan.Stage
	mu      sync.Mutex // guards the rest
	meeting *meeting.Meeting
	sealed  [][]wire.Sealed // by replica, of the messages of this round that are here: those of its layers, in order
}

// New returns a gatherer whose layers have no state yet, see Load. Close frees its memory.
func New(cfg Config) (*Gatherer, error) {
	if cfg.Plan.Local == nil || cfg.Replica < 0 || int(cfg.Replica) >= len(cfg.Plan.Replicas) {
		return nil, fmt.Errorf("%w: replica %d of %d, local steps: %t", ErrConfig, cfg.Replica, len(cfg.Plan.Replicas), cfg.Plan.Local != nil)
	}
	codec, err := compress.Parse(cfg.Plan.Local.Codec)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	g := &Gatherer{Config: cfg, codec: codec, coordinator: plan.CoordinatorOf(cfg.Plan, cfg.Replica), size: pieceBytes, first: seals.Of(cfg.Run, cfg.Plan, cfg.Lineage, cfg.Plan.Start)}
	lr, momentum := cfg.Run.Train.OuterOptimizer(cfg.Plan.Local.Codec)
	for s, place := range cfg.Plan.Replicas[cfg.Replica].Stages {
		if place.Worker() != cfg.Worker {
			continue
		}
		m, err := meeting.New(cfg.Processor, meeting.Config{
			Model: cfg.Run.Model, Layers: place.Layers, Replica: cfg.Replica, Replicas: len(cfg.Plan.Replicas),
			Codec: codec, Seed: cfg.Run.Train.Seed, Optimizer: outer.Optimizer{LR: float32(lr), Momentum: float32(momentum)}, Late: cfg.Plan.Local.Delay > 0,
		})
		if err != nil {
			g.Close()
			return nil, err
		}
		g.stages = append(g.stages, &stage{Stage: plan.Stage(s), meeting: m})
	}
	if len(g.stages) == 0 {
		return nil, fmt.Errorf("%w: replica %d has nothing on device %s of %s", ErrConfig, cfg.Replica, cfg.Worker.Device, cfg.Worker.Peer)
	}
	return g, nil
}

// Close ends a round under way and frees the memory.
func (g *Gatherer) Close() {
	if g == nil {
		return
	}
	g.End()
	for _, s := range g.stages {
		s.meeting.Close()
	}
}

// has takes in that a replica's message for the next layer is here.
func (s *stage) has(of plan.Replica, sealed wire.Sealed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed[of] = append(s.sealed[of], sealed)
}

// coordinates reports whether the worker is its replica's coordinator.
func (g *Gatherer) coordinates() bool { return g.Worker == g.coordinator }

// Load calls load to write the state of each layer that has messages.
func (g *Gatherer) Load(load func(layer int, s meeting.State) error) error {
	for _, s := range g.stages {
		for _, layer := range s.meeting.Layers() {
			state, err := s.meeting.State(layer)
			if err == nil {
				err = load(layer, state)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// State returns the state of a layer that has messages, see meeting.Meeting.State; not ok for others.
func (g *Gatherer) State(layer int) (_ meeting.State, ok bool) {
	for _, s := range g.stages {
		if state, err := s.meeting.State(layer); err == nil {
			return state, true
		}
	}
	return meeting.State{}, false
}

// Begin begins the round after a step: messages of others are taken in from now on, until ctx ends or the round does.
func (g *Gatherer) Begin(ctx context.Context, from plan.Step) {
	for _, s := range g.stages {
		s.meeting.Begin(from)
		s.sealed = make([][]wire.Sealed, len(g.Plan.Replicas))
	}
	g.round = newRound(ctx, g, from)
}

// End ends a round under way without an outer step.
func (g *Gatherer) End() {
	if g != nil && g.round != nil {
		g.round.end()
		g.round = nil
	}
}

// Offer ends the replica's part of the round: it sends what that has learned of the worker's layers, and calls read for the trained parameters of each. The
// replica's coordinator says how its inner steps went, and whether a checkpoint is due.
func (g *Gatherer) Offer(own wire.OuterReport, due bool, read func(layer int, params []float32) error) error {
	r := g.round
	defer r.meter.stands(time.Now())
	for _, s := range g.stages {
		for _, layer := range s.meeting.Layers() {
			params := make([]float32, g.Run.Model.TrainedLen(layer))
			if err := read(layer, params); err != nil {
				return err
			}
			s.mu.Lock()
			message, err := s.meeting.Offer(layer, params)
			s.mu.Unlock()
			if errors.Is(err, wire.ErrElement) {
				return &plan.Fault{Accused: g.Worker.Peer, Kind: plan.BadParameters, Step: r.from, Detail: err.Error()}
			} else if err != nil {
				return err
			}
			sealed, err := r.seals.Seal(g.Keys, seals.Message{Replica: g.Replica, Layer: layer}, message)
			if err != nil {
				return err
			}
			s.has(g.Replica, sealed)
			for _, messages := range r.outgoing {
				messages <- offered{s.Stage, layer, message, &sealed.Seal}
			}
		}
	}
	for _, messages := range r.outgoing {
		close(messages)
	}
	r.outgoing = nil
	for _, s := range g.stages {
		if err := r.have(s, g.Replica); err != nil {
			return err
		}
	}
	if g.coordinates() {
		return r.report(own, due)
	}
	return nil
}

// Merge waits for the outer step that ends the round, and makes it: write gets the trained parameters of each layer, valid until it returns. Where the worker
// has made inner steps since Offer, late, it reads what they have come to: unless the plan ends, they count. Nothing is written where the replica does not count.
func (g *Gatherer) Merge(ctx context.Context, late bool, read, write func(layer int, params []float32) error) (o Outcome, err error) {
	r := g.round
	began := time.Now()
	o.Merged, err = g.Rounds.Merged(r.ctx, r.from)
	if failed := r.end(); err != nil {
		return o, errors.Join(failed, err)
	}
	g.round = nil
	if o.Generation != g.Plan.Generation || o.From != r.from || o.To <= r.from || o.To > r.last || len(o.Parts) != len(g.Plan.Replicas) {
		return o, fmt.Errorf("%w: generation %d, steps %d to %d, %d replicas", ErrOuterStep, o.Generation, o.From, o.To, len(o.Parts))
	}
	o.Reports = r.parts.said()
	if o.Parts[g.Replica].Steps == 0 {
		return o, nil
	}
	weights := meeting.Weights(g.Plan, o.Merged)
	if !late || o.Last {
		read = nil
	}
	reached, err := g.reached(read)
	if err != nil {
		return o, err
	}
	for _, s := range g.stages {
		for _, layer := range s.meeting.Layers() {
			tied, err := g.tied(ctx, r.from, layer)
			if err != nil {
				return o, err
			}
			now, err := reached.layer(layer)
			if err != nil {
				return o, err
			}
			params, err := s.meeting.Merge(layer, weights, tied, now)
			if err == nil {
				err = write(layer, params)
			}
			if err == nil && layer == 0 {
				err = g.sendTied(ctx, r.from, s.meeting.Tied())
			}
			if err != nil {
				return o, err
			}
		}
		o.Spread.Add(s.meeting.Spread())
	}
	r.meter.stands(began)
	o.Took = r.meter.end(began)
	return o, nil
}

// ends returns the stages that have the ends of the replica's tied embedding, and the layer of the second one.
func (g *Gatherer) ends() (embed, head plan.Placement, layer int) {
	stages := g.Plan.Replicas[g.Replica].Stages
	return stages[0], stages[len(stages)-1], g.Run.Model.Layers() - 1
}

// sendTied sends the mean of a tied embedding to its other end, unless that is here.
func (g *Gatherer) sendTied(ctx context.Context, from plan.Step, mean []float32) error {
	_, head, layer := g.ends()
	if len(mean) == 0 || head.Worker() == g.Worker {
		return nil
	}
	return g.send(ctx, from, g.Replica, offered{0, layer, wire.AppendF32(nil, mean), nil})
}

// tied returns the mean of a tied embedding for its end in a layer; empty for other layers.
func (g *Gatherer) tied(ctx context.Context, from plan.Step, layer int) ([]float32, error) {
	embed, _, head := g.ends()
	mean := make([]float32, g.Run.Model.TiedGradLen())
	switch {
	case layer != head || len(mean) == 0:
		return nil, nil
	case embed.Worker() == g.Worker:
		return g.stages[0].meeting.Tied(), nil
	}
	tag := g.tag(wire.OuterGrad, from, 0, index(head, g.Replica, 0))
	message, err := g.receive(ctx, embed.Peer, tag, 4*len(mean))
	if err != nil {
		return nil, err
	}
	if err := wire.CheckElements(message, 2*wire.ReducePart.Bound()); err != nil { // a mean is no larger than what it is of, but for how it is rounded
		return nil, g.faulty(plan.BadTensor, embed.Peer, tag, err)
	}
	return mean, wire.DecodeF32(mean, message)
}
