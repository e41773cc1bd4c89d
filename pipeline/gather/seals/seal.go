package seals

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// ErrSeal is wrapped by errors about seals that are not their member's.
var ErrSeal = errors.New("seals: a message without its sender's seal")

// Keys signs as this node, and checks the signatures of others: a peer ID holds its public key.
type Keys interface {
	Sign(message []byte) ([]byte, error)
	Verify(by plan.PeerID, message, signature []byte) error
}

// Alone are the keys of a process that has all members of a run in it, such as one that trains it again: there is nobody to convince.
type Alone struct{}

// Sign returns a signature that says nothing.
func (Alone) Sign([]byte) ([]byte, error) { return make([]byte, wire.SealBytes), nil }

// Verify takes all.
func (Alone) Verify(plan.PeerID, []byte, []byte) error { return nil }

// Losses stands for a layer in the name of a message with losses.
const Losses = -1

// Message names a message of a round.
type Message struct {
	Replica plan.Replica
	// Layer is that of an outer gradient, or Losses.
	Layer int
}

// Round names a round of a plan. Seals of one are worth nothing in another. After a recovery a run may have another plan of the same generation, or the same once more: Lineage
// tells them apart.
type Round struct {
	Run     plan.RunSpec
	Plan    plan.Plan
	Lineage string // of the log, in which the plan was made: plan.Partings.Of
	From    plan.Step
	plan    plan.Hash
}

// Of returns the round after a step of a plan that was made in a lineage of the log.
func Of(run plan.RunSpec, p plan.Plan, lineage string, from plan.Step) Round {
	return Round{Run: run, Plan: p, Lineage: lineage, From: from, plan: sha256.Sum256(p.Encode())}
}

// After returns another round of the same plan.
func (r Round) After(from plan.Step) Round {
	r.From = from
	return r
}

// statement returns what is signed.
func (r Round) statement(m Message, hash plan.Hash) []byte {
	b := []byte("pnode outer message\x00")
	for _, name := range []string{string(r.Run.Run), r.Lineage} {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(name)))
		b = append(b, name...)
	}
	b = append(b, r.plan[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.From))
	b = binary.LittleEndian.AppendUint32(b, uint32(m.Replica))
	b = binary.LittleEndian.AppendUint32(b, uint32(m.Layer))
	return append(b, hash[:]...)
}

// Seal seals a payload.
func (r Round) Seal(k Keys, m Message, payload []byte) (s wire.Sealed, err error) {
	s.Hash = sha256.Sum256(payload)
	signature, err := k.Sign(r.statement(m, s.Hash))
	if err == nil && len(signature) != len(s.Seal) {
		err = fmt.Errorf("a signature of %d bytes, want %d", len(signature), len(s.Seal))
	}
	if err != nil {
		return s, fmt.Errorf("seals: %w", err)
	}
	copy(s.Seal[:], signature)
	return s, nil
}

// Check returns an error that wraps ErrSeal unless the seal is that of the member whose message it is.
func (r Round) Check(k Keys, m Message, s wire.Sealed) error {
	if err := k.Verify(r.Sender(m).Peer, r.statement(m, s.Hash), s.Seal[:]); err != nil {
		return fmt.Errorf("%w: %w", ErrSeal, err)
	}
	return nil
}

// Sender returns the worker that sends a message: the stage that has the layer, or the replica's coordinator.
func (r Round) Sender(m Message) plan.WorkerID {
	for _, at := range r.Plan.Replicas[m.Replica].Stages {
		if at.Layers.Contains(m.Layer) {
			return at.Worker()
		}
	}
	return plan.CoordinatorOf(r.Plan, m.Replica)
}
