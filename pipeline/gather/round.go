package gather

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/collective"
	"pnode/pipeline/meeting"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// round is one under way: its goroutines send and take in messages.
type round struct {
	*Gatherer
	from, last plan.Step // it is after from, and ends with last unless it is closed
	ctx        context.Context
	cancel     context.CancelFunc
	group      *errgroup.Group
	outgoing   []chan offered // to the other replicas; nil once all is offered
	parts      *parts
	meter      meter
}

// offered is a message of a stage's layer.
type offered struct {
	stage   plan.Stage
	layer   int
	message []byte
}

func newRound(ctx context.Context, g *Gatherer, from plan.Step) *round {
	r := &round{Gatherer: g, meter: meter{begun: time.Now()}, from: from, last: g.Plan.Local.RoundEnd(from, g.Run.Train.Steps)}
	ctx, r.cancel = context.WithCancel(ctx)
	r.group, r.ctx = errgroup.WithContext(ctx)
	r.parts = newParts(g, from)
	for q := range g.Plan.Replicas {
		q := plan.Replica(q)
		if q != g.Replica {
			messages := make(chan offered, g.Run.Model.Layers())
			r.outgoing = append(r.outgoing, messages)
			r.group.Go(func() error { return r.sendAll(q, messages) })
			for _, s := range g.stages {
				r.group.Go(func() error { return r.takeAll(s, q) })
			}
		}
		if !g.coordinates() {
			continue
		}
		if q != g.Replica {
			r.group.Go(func() error { return r.takeReport(q) })
		}
		for s, place := range g.Plan.Replicas[g.Replica].Stages {
			if place.Worker() != g.Worker {
				r.group.Go(func() error { return r.takeHave(plan.Stage(s), q) })
			}
		}
	}
	return r
}

// end ends the round's goroutines and returns the fault of whoever of the own replica sent what no honest member does.
func (r *round) end() error {
	r.cancel()
	for _, messages := range r.outgoing { // of a round that has failed
		close(messages)
	}
	r.outgoing = nil
	return r.group.Wait()
}

// tag returns the tag of a message of a stage of this replica.
func (g *Gatherer) tag(kind wire.Kind, from plan.Step, s plan.Stage, index int32) wire.Tag {
	return wire.Tag{Kind: kind, Generation: g.Plan.Generation, Step: from, Replica: g.Replica, Stage: s, Index: index}
}

// faulty returns the fault of whoever brought a message.
func (g *Gatherer) faulty(kind plan.FaultKind, from plan.PeerID, t wire.Tag, err error) error {
	return &plan.Fault{Accused: collective.Brought(g.Exchange, from, t), Kind: kind, Step: t.Step, Detail: fmt.Sprintf("%v: %v", t, err)}
}

// send sends a layer's message to the stage of a replica that has the layer, in pieces.
func (g *Gatherer) send(ctx context.Context, from plan.Step, to plan.Replica, m offered) error {
	peer := g.Plan.Replicas[to].Stages[stageOf(g.Plan, to, m.layer)].Peer
	for k := 0; ; k++ {
		first, end := piece(k, len(m.message), g.size)
		if first == end {
			return nil
		}
		tag := g.tag(wire.OuterGrad, from, m.stage, index(m.layer, to, k))
		if err := g.Exchange.Send(ctx, peer, wire.Frame{Tag: tag, Payload: m.message[first:end]}); err != nil {
			return err
		}
	}
}

// receive returns a message of so many bytes, whose first piece has the tag.
func (g *Gatherer) receive(ctx context.Context, from plan.PeerID, tag wire.Tag, bytes int) (message []byte, err error) {
	for k := 0; ; k++ {
		first, end := piece(k, bytes, g.size)
		if first == end {
			return message, nil
		}
		t := tag
		t.Index += index(0, 0, k)
		payload, err := g.Exchange.Receive(ctx, from, t)
		switch {
		case err != nil:
			return nil, err
		case len(payload) != end-first:
			return nil, g.faulty(plan.BadFrame, from, t, fmt.Errorf("%w: it has %d bytes, want %d", wire.ErrLength, len(payload), end-first))
		case end-first == bytes:
			return payload, nil
		case message == nil:
			message = make([]byte, 0, bytes)
		}
		message = append(message, payload...)
	}
}

// lacking drops the error of what came from another replica, or of a connection to it: its messages are lacking then. The log is told of a fault, since all
// are to be of one mind about it.
func (r *round) lacking(err error) error {
	if fault := (*plan.Fault)(nil); errors.As(err, &fault) {
		r.Rounds.Found(r.from, *fault)
	}
	return nil
}

// sendAll sends a replica what the worker offers.
func (r *round) sendAll(to plan.Replica, messages <-chan offered) error {
	for m := range messages {
		if r.send(r.ctx, r.from, to, m) != nil {
			return nil // offers never wait
		}
		r.meter.sent.Add(int64(len(m.message)))
	}
	return nil
}

// takeAll takes in what a replica sends of a stage's layers, in order.
func (r *round) takeAll(s *stage, of plan.Replica) error {
	for _, layer := range s.meeting.Layers() {
		sender := stageOf(r.Plan, of, layer)
		peer := r.Plan.Replicas[of].Stages[sender].Peer
		tag := r.tag(wire.OuterGrad, r.from, sender, index(layer, r.Replica, 0))
		tag.Replica = of
		message, err := r.receive(r.ctx, peer, tag, meeting.MessageBytes(r.Run.Model, r.codec, layer))
		if err != nil {
			return r.lacking(err)
		}
		s.mu.Lock()
		err = s.meeting.Take(of, layer, message)
		s.mu.Unlock()
		if err != nil {
			return r.lacking(r.faulty(plan.BadTensor, peer, tag, err))
		}
		r.meter.took(len(message))
	}
	return r.have(s, of)
}

// have tells the replica's coordinator that all of a replica's messages for a stage are here.
func (r *round) have(s *stage, of plan.Replica) error {
	s.mu.Lock()
	hashes, ok := s.meeting.Hashes(of)
	s.mu.Unlock()
	switch {
	case !ok:
		return fmt.Errorf("%w: of replica %d", meeting.ErrMissing, of)
	case r.coordinates():
		r.parts.put(of, s.Stage, hashes)
		return nil
	}
	frame := wire.Frame{Tag: r.tag(wire.OuterHave, r.from, s.Stage, int32(of)), Payload: wire.AppendOuterHave(nil, hashes)}
	return r.Exchange.Send(r.ctx, r.coordinator.Peer, frame)
}

// takeHave takes in which messages of a replica another worker of this one has for a stage.
func (r *round) takeHave(s plan.Stage, of plan.Replica) error {
	place, tag := r.Plan.Replicas[r.Replica].Stages[s], r.tag(wire.OuterHave, r.from, s, int32(of))
	payload, err := r.Exchange.Receive(r.ctx, place.Peer, tag)
	if err != nil {
		return err
	}
	hashes, err := wire.DecodeOuterHave(payload)
	if want := sent(r.Run.Model, r.codec, place.Layers); err == nil && len(hashes) != want {
		err = fmt.Errorf("%w: %d hashes, want %d", wire.ErrLength, len(hashes), want)
	}
	if err != nil {
		return r.faulty(plan.BadReport, place.Peer, tag, err)
	}
	r.parts.put(of, s, hashes)
	return nil
}

// report says how the replica's inner steps went, here and to the other replicas.
func (r *round) report(own wire.OuterReport, due bool) {
	for q := range r.Plan.Replicas {
		q := plan.Replica(q)
		if q == r.Replica {
			continue
		}
		r.group.Go(func() error {
			at := plan.Stage(len(r.Plan.Replicas[r.Replica].Stages) - 1)
			frame := wire.Frame{Tag: r.tag(wire.KindOuterReport, r.from, at, int32(q)), Payload: wire.AppendOuterReport(nil, own)}
			return r.lacking(r.Exchange.Send(r.ctx, plan.CoordinatorOf(r.Plan, q).Peer, frame))
		})
	}
	r.parts.report(r.Replica, own, due)
}

// takeReport takes in how a replica's inner steps went.
func (r *round) takeReport(of plan.Replica) error {
	peer := plan.CoordinatorOf(r.Plan, of).Peer
	tag := r.tag(wire.KindOuterReport, r.from, plan.Stage(len(r.Plan.Replicas[of].Stages)-1), int32(r.Replica))
	tag.Replica = of
	payload, err := r.Exchange.Receive(r.ctx, peer, tag)
	if err != nil {
		return r.lacking(err)
	}
	theirs, err := wire.DecodeOuterReport(payload)
	if err == nil && (theirs.Steps() == 0 || theirs.Steps() > r.last-r.from) {
		err = fmt.Errorf("%w: it has %d inner steps of a round of %d", wire.ErrValue, theirs.Steps(), r.last-r.from)
	}
	said := theirs.Losses
	for _, loss := range []*float64{theirs.HeldOut, theirs.HeldOutF32} {
		if loss != nil {
			said = append(slices.Clip(said), *loss)
		}
	}
	if err == nil && of != 0 && theirs.HeldOut != nil {
		err = fmt.Errorf("%w: a held-out loss, which replica 0 alone computes", wire.ErrValue)
	}
	for _, loss := range said {
		if err == nil && !(loss >= 0 && loss <= wire.MaxLoss) {
			err = fmt.Errorf("%w: a loss is %v, want 0 to %.0e", wire.ErrValue, loss, wire.MaxLoss)
		}
	}
	if err != nil {
		return r.lacking(r.faulty(plan.BadReport, peer, tag, err))
	}
	r.parts.report(of, theirs, false)
	return nil
}
