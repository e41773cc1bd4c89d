package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"pnode/planner/plan"
)

// Bounds of the messages of a round: flags, two held-out losses and a loss for each inner step, and a sealed hash for each layer.
const (
	MaxOuterReportBytes = 1 + 16 + 8*plan.MaxEvery
	MaxOuterHaveBytes   = SealedBytes * maxOuterHashes

	maxOuterHashes = 1 << 11 // a model has 1,026 layers at most
)

// Seal is the signature under a message of a round, by the member that sent it: Ed25519 (RFC 8032).
type Seal [64]byte

// SealBytes is the size of a seal, SealedBytes that of a hash with one.
const (
	SealBytes   = len(Seal{})
	SealedBytes = len(plan.Hash{}) + SealBytes
)

// Sealed is the SHA-256 of a message of a round, and the seal under that message.
type Sealed struct {
	Hash plan.Hash
	Seal Seal
}

// OuterReport says how a round went: it has the loss of each inner step that a replica made, in order, which is the mean over
// the replica's micro-batches in nats a token.
type OuterReport struct {
	Losses []float64
	// HeldOut and HeldOutF32 are the held-out losses before the first of them, as Commit has them: nil where none were computed.
	HeldOut, HeldOutF32 *float64
}

// Steps counts the inner steps.
func (r OuterReport) Steps() plan.Step { return plan.Step(len(r.Losses)) }

// OuterReportBytes returns the most bytes of a report of so many steps.
func OuterReportBytes(steps plan.Step) int { return 1 + 16 + 8*int(steps) }

// AppendOuterReport appends the encoded report.
func AppendOuterReport(dst []byte, r OuterReport) []byte {
	flags, losses := byte(0), r.Losses
	if r.HeldOut != nil {
		flags, losses = flagHeldOut, append([]float64{*r.HeldOut}, losses...)
	}
	if r.HeldOut != nil && r.HeldOutF32 != nil {
		flags, losses = flagHeldOut|flagHeldOutF32, append([]float64{*r.HeldOutF32}, losses...)
	}
	dst = append(dst, flags)
	for _, loss := range losses {
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(loss))
	}
	return dst
}

// DecodeOuterReport reads a report that fills b exactly.
func DecodeOuterReport(b []byte) (OuterReport, error) {
	if len(b)%8 != 1 || len(b) > MaxOuterReportBytes {
		return OuterReport{}, fmt.Errorf("%w: losses in %d bytes, want one and 8 for each, at most %d", ErrLength, len(b), MaxOuterReportBytes)
	}
	flags := b[0]
	losses := make([]float64, len(b)/8)
	for i := range losses {
		losses[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[1+8*i:]))
	}
	var r OuterReport
	for _, has := range []struct {
		flags byte
		loss  **float64
	}{{flagHeldOut | flagHeldOutF32, &r.HeldOutF32}, {flagHeldOut, &r.HeldOut}} {
		if flags&has.flags != has.flags {
			continue
		}
		if len(losses) == 0 {
			return OuterReport{}, fmt.Errorf("%w: flags %#02x and no loss", ErrLength, flags)
		}
		*has.loss, losses = &losses[0], losses[1:]
	}
	if flags != 0 && flags != flagHeldOut && flags != flagHeldOut|flagHeldOutF32 {
		return OuterReport{}, fmt.Errorf("%w: flags %#02x of a round's losses", ErrValue, flags)
	}
	r.Losses = losses
	return r, nil
}

// OuterHaveBytes returns the size of so many sealed hashes.
func OuterHaveBytes(hashes int) int { return SealedBytes * hashes }

// AppendOuterHave appends sealed hashes of messages.
func AppendOuterHave(dst []byte, sealed []Sealed) []byte {
	for _, s := range sealed {
		dst = append(append(dst, s.Hash[:]...), s.Seal[:]...)
	}
	return dst
}

// DecodeOuterHave reads sealed hashes that fill b exactly.
func DecodeOuterHave(b []byte) ([]Sealed, error) {
	if len(b)%SealedBytes != 0 || len(b) > MaxOuterHaveBytes {
		return nil, fmt.Errorf("%w: sealed hashes in %d bytes, want %d for each, at most %d", ErrLength, len(b), SealedBytes, MaxOuterHaveBytes)
	}
	sealed := make([]Sealed, len(b)/SealedBytes)
	for i := range sealed {
		one := b[SealedBytes*i:]
		sealed[i] = Sealed{plan.Hash(one), Seal(one[len(plan.Hash{}):])}
	}
	return sealed, nil
}
