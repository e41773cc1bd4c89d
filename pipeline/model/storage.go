package model

import "pnode/kernels"

// Storage says how a stack stores what matrix products read.
type Storage uint8

const (
	// StorageF32 stores all floats in float32.
	StorageF32 Storage = iota
	// StorageBF16 gives the products of a stack BF16 operands and float32 sums, with
	// float32 master weights (Micikevicius et al. 2018, section 3; Kalamkar et al. 2019).
	//
	// Beside the parameters, which the optimizer and checkpoints see, a stack has a BF16
	// copy of them, which the optimizer writes too; RoundWeights brings all of it up to date.
	// Rounding to nearest is what a run has unless it asks for another: updates smaller than
	// the copy's last digit add up in the masters, so stochastic rounding adds error to a step
	// and only takes away what all steps have in common. See Rounded for what keeps that the
	// same on both ends of a tied matrix and after a resumption.
	//
	// A slot keeps the inputs and outputs of a block's products in BF16, and attention reads
	// and writes these as they are. Each is rounded as soon as it is computed, and every
	// reader, in whichever pass, gets the rounded one, so that recomputation still changes no
	// bit. The residual stream, statistics of rows, biases, weights of norms, learned positions
	// and the gradients of queries, keys and values stay float32.
	StorageBF16
	// StorageF16 is the same in F16, for devices whose matrix units do not know BF16, with
	// gradients scaled (see Unscale). Weights are rounded to nearest, whatever the noise: F16 has 11
	// bits of precision.
	StorageF16
	storages
	// StorageInt8 is a Decoder's alone: it has the matrices that products and the embedding read as int8, with a scale for each few weights of
	// a row (kernels.MatMulInt8). All else, and what they are multiplied with, is float32.
	StorageInt8
)

var storageNames = []string{"f32", "bf16", "f16"}

func (s Storage) String() string {
	if s == StorageInt8 {
		return "int8"
	}
	return enumName(s, storageNames)
}

// StorageNames returns the names of all that a stack can have.
func StorageNames() []string { return storageNames }

// ParseStorage returns the storage of that name; the error wraps ErrBadConfig.
func ParseStorage(name string) (Storage, error) {
	return parseEnum[Storage]("storage", name, storageNames)
}

// MarshalText returns the storage's name.
func (s Storage) MarshalText() ([]byte, error) { return enumText("storage", s, storageNames) }

// UnmarshalText reads a name.
func (s *Storage) UnmarshalText(text []byte) (err error) {
	*s, err = ParseStorage(string(text))
	return err
}

// half is the type of what products read, where it is not float32.
func (s Storage) half() kernels.DType {
	if s == StorageF16 {
		return kernels.F16
	}
	return kernels.BF16
}

// kept is a tensor that lives from forward to backward as far as its level says. In halves
// that is the half alone: wide is room that other tensors of the layer use too.
type kept struct {
	wide kernels.View // as the kernels compute and read it
	half kernels.View // absent with F32 storage
}

// factor returns the tensor as matrix products and attention read it, after store.
func (k kept) factor() kernels.View {
	if k.half.Len > 0 {
		return k.half
	}
	return k.wide
}

// store keeps what was computed in wide.
func (k kept) store(q issuer) {
	if k.half.Len > 0 {
		q.Do(kernels.Cast(k.half, k.wide, k.half.Len))
	}
}

// load makes wide valid again.
func (k kept) load(q issuer) {
	if k.half.Len > 0 {
		q.Do(kernels.Cast(k.wide, k.half, k.half.Len))
	}
}

// at is a span of the tensor.
func (k kept) at(s span) kept { return kept{wide: s.of(k.wide), half: s.of(k.half)} }

// rounding is the room in halves of the gradients that products of a layer read; absent with
// F32 storage.
type rounding struct{ room kernels.View }

// of gives v as a product reads it, valid until the next use of the room.
func (r rounding) of(q issuer, v kernels.View) kernels.View {
	if r.room.Len == 0 {
		return v
	}
	half := r.room.Slice(0, v.Len)
	q.Do(kernels.Cast(half, v, v.Len))
	return half
}

// desk is the room of a block that its tensors use in turns with storage in halves; absent with
// F32 storage.
type desk struct {
	in       kernels.View // float32 of what goes into a product
	out      kernels.View // float32 of what comes out of one
	gradient rounding
}

// passHalves takes n elements in halves for the passes of the layer at hand; absent with F32
// storage.
func (b *builder) passHalves(n int) kernels.View {
	if b.storage == StorageF32 {
		return kernels.View{}
	}
	return b.mem.layerHalves.take(n)
}

// keep takes a tensor of n elements that levels from `dropped` on drop, with its float32
// at the front of room if it is kept in halves.
func (b *builder) keep(level, dropped Recompute, room kernels.View, n int) kept {
	if b.storage == StorageF32 {
		return kept{wide: b.activations(level, dropped).take(n)}
	}
	halves := &b.mem.savedHalves
	if level >= dropped {
		halves = b.droppedHalves
	}
	return kept{wide: room.Slice(0, n), half: halves.take(n)}
}
