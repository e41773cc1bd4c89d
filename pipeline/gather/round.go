package gather

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/collective"
	"pnode/pipeline/gather/seals"
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
	seals      seals.Round
	meter      meter
}

// offered is a message of a stage's layer.
type offered struct {
	stage   plan.Stage
	layer   int
	message []byte
	seal    *wire.Seal // nil where no other replica gets it
}

func newRound(ctx context.Context, g *Gatherer, from plan.Step) *round {
	r := &round{Gatherer: g, meter: meter{begun: time.Now()}, from: from, last: g.Plan.Local.RoundEnd(from, g.Run.Train.Steps)}
	ctx, r.cancel = context.WithCancel(ctx)
	r.group, r.ctx = errgroup.WithContext(ctx)
	r.parts, r.seals = newParts(g, from), g.first.After(from)
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

// send sends a layer's message to the stage of a replica that has the layer, in pieces. The seal comes behind the last one.
func (g *Gatherer) send(ctx context.Context, from plan.Step, to plan.Replica, m offered) error {
	peer := g.Plan.Replicas[to].Stages[stageOf(g.Plan, to, m.layer)].Peer
	send := func(k int, payload []byte) error {
		tag := g.tag(wire.OuterGrad, from, m.stage, index(m.layer, to, k))
		return g.Exchange.Send(ctx, peer, wire.Frame{Tag: tag, Payload: payload})
	}
	for k := 0; ; k++ {
		first, end := piece(k, len(m.message), g.size)
		switch {
		case first < end:
			if err := send(k, m.message[first:end]); err != nil {
				return err
			}
		case m.seal != nil:
			return send(k, m.seal[:])
		default:
			return nil
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
		payload, err := g.receivePiece(ctx, from, tag, k, end-first)
		switch {
		case err != nil:
			return nil, err
		case end-first == bytes:
			return payload, nil
		case message == nil:
			message = make([]byte, 0, bytes)
		}
		message = append(message, payload...)
	}
}

// receivePiece returns piece k, of so many bytes, of the message whose first piece has the tag.
func (g *Gatherer) receivePiece(ctx context.Context, from plan.PeerID, tag wire.Tag, k, bytes int) ([]byte, error) {
	tag.Index += index(0, 0, k)
	payload, err := g.Exchange.Receive(ctx, from, tag)
	if err == nil && len(payload) != bytes {
		err = g.faulty(plan.BadFrame, from, tag, fmt.Errorf("%w: it has %d bytes, want %d", wire.ErrLength, len(payload), bytes))
	}
	return payload, err
}

// receiveSealed returns a message as receive does, and its seal, which is its sender's.
func (r *round) receiveSealed(from plan.PeerID, tag wire.Tag, bytes int) (message []byte, sealed wire.Sealed, err error) {
	if message, err = r.receive(r.ctx, from, tag, bytes); err != nil {
		return nil, sealed, err
	}
	seal, err := r.receivePiece(r.ctx, from, tag, pieces(bytes, r.size), wire.SealBytes)
	if err != nil {
		return nil, sealed, err
	}
	layer, _, _ := collective.LayerOf(tag)
	sealed = wire.Sealed{Hash: sha256.Sum256(message), Seal: wire.Seal(seal)}
	if err := r.seals.Check(r.Keys, seals.Message{Replica: tag.Replica, Layer: layer}, sealed); err != nil {
		return nil, sealed, r.faulty(plan.BadTensor, from, tag, err)
	}
	return message, sealed, nil
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
		message, sealed, err := r.receiveSealed(peer, tag, meeting.MessageBytes(r.Run.Model, r.codec, layer))
		if err != nil {
			return r.lacking(err)
		}
		s.mu.Lock()
		err = s.meeting.Take(of, layer, message)
		s.mu.Unlock()
		if err != nil {
			return r.lacking(r.faulty(plan.BadTensor, peer, tag, err))
		}
		s.has(of, sealed)
		r.meter.took(len(message))
	}
	return r.have(s, of)
}

// have tells the replica's coordinator that all of a replica's messages for a stage are here.
func (r *round) have(s *stage, of plan.Replica) error {
	s.mu.Lock()
	sealed := s.sealed[of]
	s.mu.Unlock()
	if r.coordinates() {
		r.parts.put(of, s.Stage, sealed)
		return nil
	}
	frame := wire.Frame{Tag: r.tag(wire.OuterHave, r.from, s.Stage, int32(of)), Payload: wire.AppendOuterHave(nil, sealed)}
	return r.Exchange.Send(r.ctx, r.coordinator.Peer, frame)
}

// takeHave takes in which messages of a replica another worker of this one has for a stage.
func (r *round) takeHave(s plan.Stage, of plan.Replica) error {
	place, tag := r.Plan.Replicas[r.Replica].Stages[s], r.tag(wire.OuterHave, r.from, s, int32(of))
	payload, err := r.Exchange.Receive(r.ctx, place.Peer, tag)
	if err != nil {
		return err
	}
	sealed, err := wire.DecodeOuterHave(payload)
	if err == nil {
		err = r.checkHave(place.Layers, of, sealed)
	}
	if err != nil {
		return r.faulty(plan.BadReport, place.Peer, tag, err)
	}
	r.parts.put(of, s, sealed)
	return nil
}

// checkHave returns an error unless there is a good seal for each of the layers that has messages: who says to have what its sender cannot be shown to have
// sent is not believed.
func (r *round) checkHave(layers plan.LayerRange, of plan.Replica, sealed []wire.Sealed) error {
	if want := sent(r.Run.Model, r.codec, layers); len(sealed) != want {
		return fmt.Errorf("%w: %d hashes, want %d", wire.ErrLength, len(sealed), want)
	}
	i := 0
	for layer := layers.First; layer < layers.End; layer++ {
		if meeting.MessageBytes(r.Run.Model, r.codec, layer) == 0 {
			continue
		}
		if err := r.seals.Check(r.Keys, seals.Message{Replica: of, Layer: layer}, sealed[i]); err != nil {
			return fmt.Errorf("layer %d: %w", layer, err)
		}
		i++
	}
	return nil
}

// report says how the replica's inner steps went, here and to the other replicas.
func (r *round) report(own wire.OuterReport, due bool) error {
	encoded := wire.AppendOuterReport(nil, own)
	sealed, err := r.seals.Seal(r.Keys, seals.Message{Replica: r.Replica, Layer: seals.Losses}, encoded)
	if err != nil {
		return err
	}
	for q := range r.Plan.Replicas {
		q := plan.Replica(q)
		if q == r.Replica {
			continue
		}
		r.group.Go(func() error {
			at := plan.Stage(len(r.Plan.Replicas[r.Replica].Stages) - 1)
			frame := wire.Frame{Tag: r.tag(wire.KindOuterReport, r.from, at, int32(q)), Payload: slices.Concat(encoded, sealed.Seal[:])}
			return r.lacking(r.Exchange.Send(r.ctx, plan.CoordinatorOf(r.Plan, q).Peer, frame))
		})
	}
	r.parts.report(r.Replica, own, sealed.Seal, due)
	return nil
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
	encoded, seal := payload[:max(0, len(payload)-wire.SealBytes)], wire.Seal{}
	copy(seal[:], payload[len(encoded):])
	theirs, err := wire.DecodeOuterReport(encoded)
	if err == nil {
		err = r.seals.Check(r.Keys, seals.Message{Replica: of, Layer: seals.Losses}, wire.Sealed{Hash: sha256.Sum256(encoded), Seal: seal})
	}
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
	r.parts.report(of, theirs, seal, false)
	return nil
}
