package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"pnode/planner/plan"
)

// commitBytes is the size of an encoded commit without its optional end, a fifth float and a schedule:
// step, four floats, flags.
const commitBytes = 5*8 + 1

// MaxCommitBytes is the size of the largest commit.
const MaxCommitBytes = commitBytes + 8 + plan.MaxScheduleChoiceBytes

const (
	flagSave = 1 << iota
	flagStop
	flagHeldOut
	flagHeldOutF32
	flagMerge
	flagsEnd
)

// Commit makes a step count. The coordinator sends the same one to all workers.
type Commit struct {
	Step plan.Step
	// Loss is the mean over the step's micro-batches in nats a token.
	Loss float64
	// Norm is the global gradient norm before clipping.
	Norm float64
	// GradScale multiplies gradients in the optimizer: 1, less when the norm is
	// clipped, 0 when it is not finite and the update is skipped.
	GradScale float64
	// HeldOut is the held-out loss before the update, nil when none was computed.
	HeldOut *float64
	// HeldOutF32 is the held-out loss with every stage in float32; nil where all are, where it was
	// not measured, and without HeldOut.
	HeldOutF32 *float64
	// Save asks every worker to store its state after the update, Stop to end the run.
	Save, Stop bool
	// Merge ends the round of a replica with local steps: an outer step follows.
	Merge bool
	// Next is the text of the plan.ScheduleChoice that all workers take from the next step on;
	// empty leaves them on theirs.
	Next string
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
	if c.Merge {
		flags |= flagMerge
	}
	if c.HeldOut != nil && c.HeldOutF32 != nil {
		dst = le.AppendUint64(append(dst, flags|flagHeldOutF32), math.Float64bits(*c.HeldOutF32))
	} else {
		dst = append(dst, flags)
	}
	return append(dst, c.Next...)
}

// DecodeCommit reads a commit that fills b exactly, at most MaxCommitBytes.
func DecodeCommit(b []byte) (Commit, error) {
	if len(b) < commitBytes || len(b) > MaxCommitBytes {
		return Commit{}, fmt.Errorf("%w: commit of %d bytes, want %d to %d", ErrLength, len(b), commitBytes, MaxCommitBytes)
	}
	flags := b[commitBytes-1]
	if flags >= flagsEnd {
		return Commit{}, fmt.Errorf("%w: commit flags %#02x", ErrValue, flags)
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	c := Commit{
		Step: plan.Step(word(0)),
		Loss: math.Float64frombits(word(1)), Norm: math.Float64frombits(word(2)), GradScale: math.Float64frombits(word(3)),
		Save: flags&flagSave != 0, Stop: flags&flagStop != 0, Merge: flags&flagMerge != 0,
	}
	rest := b[commitBytes:]
	if flags&flagHeldOutF32 != 0 {
		if len(rest) < 8 || flags&flagHeldOut == 0 {
			return Commit{}, fmt.Errorf("%w: commit has flags %#02x and %d bytes after them", ErrValue, flags, len(rest))
		}
		f32 := math.Float64frombits(binary.LittleEndian.Uint64(rest))
		c.HeldOutF32, rest = &f32, rest[8:]
	}
	if len(rest) > plan.MaxScheduleChoiceBytes {
		return Commit{}, fmt.Errorf("%w: schedule of %d bytes, at most %d are accepted", ErrLength, len(rest), plan.MaxScheduleChoiceBytes)
	}
	if c.Next = string(rest); c.Next != "" {
		if _, err := plan.ParseScheduleChoice(c.Next); err != nil {
			return Commit{}, fmt.Errorf("%w: %w", ErrValue, err)
		}
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

// MaxLoss bounds the losses that members say. It is far above that of a model that says anything: log(vocabulary) is about 10 nats a token.
const MaxLoss = 1e6
