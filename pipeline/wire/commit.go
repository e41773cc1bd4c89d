package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"pnode/planner"
)

// CommitBytes is the size of an encoded commit: step, four floats, flags.
const CommitBytes = 5*8 + 1

const (
	flagSave = 1 << iota
	flagStop
	flagHeldOut
	flagsEnd
)

// Commit is the coordinator's word that a step counts; it is the same for all workers.
type Commit struct {
	Step planner.Step
	// Loss is the mean over the step's micro-batches in nats a token.
	Loss float64
	// Norm is the global gradient norm before clipping.
	Norm float64
	// GradScale is what the optimizer multiplies gradients by: 1, less when the norm is
	// clipped, 0 when it is not finite and the update is skipped.
	GradScale float64
	// HeldOut is the held-out loss before the update, nil when none was computed.
	HeldOut *float64
	// Save asks every worker to store its state after the update, Stop to end the run.
	Save, Stop bool
}

// AppendCommit appends the encoded commit.
func AppendCommit(dst []byte, c Commit) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint64(dst, uint64(c.Step))
	heldOut, flags := 0.0, byte(0)
	if c.HeldOut != nil {
		heldOut, flags = *c.HeldOut, flagHeldOut
	}
	for _, v := range [...]float64{c.Loss, c.Norm, c.GradScale, heldOut} {
		dst = le.AppendUint64(dst, math.Float64bits(v))
	}
	if c.Save {
		flags |= flagSave
	}
	if c.Stop {
		flags |= flagStop
	}
	return append(dst, flags)
}

// DecodeCommit reads exactly CommitBytes.
func DecodeCommit(b []byte) (Commit, error) {
	if len(b) != CommitBytes {
		return Commit{}, fmt.Errorf("%w: commit of %d bytes, want %d", ErrLength, len(b), CommitBytes)
	}
	flags := b[CommitBytes-1]
	if flags >= flagsEnd {
		return Commit{}, fmt.Errorf("%w: commit flags %#02x", ErrValue, flags)
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	c := Commit{
		Step: planner.Step(word(0)),
		Loss: math.Float64frombits(word(1)), Norm: math.Float64frombits(word(2)), GradScale: math.Float64frombits(word(3)),
		Save: flags&flagSave != 0, Stop: flags&flagStop != 0,
	}
	switch {
	case flags&flagHeldOut != 0:
		heldOut := math.Float64frombits(word(4))
		c.HeldOut = &heldOut
	case word(4) != 0:
		return Commit{}, fmt.Errorf("%w: commit has a held-out loss but no flag for it", ErrValue)
	}
	return c, nil
}
