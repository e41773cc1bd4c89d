package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"pnode/planner/plan"
)

// Version is the version of frames and streams this package reads and writes.
const Version = 5

// MaxTensorBytes bounds the payload of a message that carries a tensor.
const MaxTensorBytes = plan.MaxMessageBytes

// HeaderBytes is the size of a frame's front:
//
//	 0 magic u32 | 4 version u8 | 5 kind u8 | 6 zero u16 | 8 generation u64 | 16 step u64
//	24 replica u32 | 28 stage u32 | 32 index u32 | 36 payload length u32 | 40 CRC-32C u32
//
// The checksum covers bytes [0,40) and the payload.
const HeaderBytes = 44

const (
	frameMagic = 0x464e5001 // bytes 01 'P' 'N' 'F'
	checked    = HeaderBytes - 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Tag names one message of a session; together with the sender it is unique in its
// generation.
type Tag struct {
	Kind       Kind
	Generation plan.Generation
	Step       plan.Step
	// Replica and Stage are the receiver's; for ReducePart, GatherPart and KindReport the
	// sender's; for StatePart and StateTaken the owner's of the part; for messages of a round the sender's.
	Replica plan.Replica
	Stage   plan.Stage
	// Index is the micro-batch of Activation and Gradient, what the collective package
	// chooses for parts of vectors, or the gather package for messages of a round, and 0 for the rest.
	Index int32
}

func (t Tag) String() string {
	return fmt.Sprintf("%v generation %d step %d replica %d stage %d index %d", t.Kind, t.Generation, t.Step, t.Replica, t.Stage, t.Index)
}

// Validate returns an error unless the tag can be encoded: a known kind, nothing negative, replica and
// stage below 2^31.
func (t Tag) Validate() error {
	if !t.Kind.Valid() {
		return fmt.Errorf("%w: %d", ErrKind, uint8(t.Kind))
	}
	if t.Replica < 0 || t.Replica > math.MaxInt32 || t.Stage < 0 || t.Stage > math.MaxInt32 || t.Index < 0 {
		return fmt.Errorf("%w: %v", ErrValue, t)
	}
	return nil
}

// Frame is one message. Payload is nobody's to change once the frame is on its way.
type Frame struct {
	Tag     Tag
	Payload []byte
}

// Header is a frame's front as it was read.
type Header struct {
	Tag Tag
	// PayloadBytes is how many bytes follow, within the bound given to DecodeHeader.
	PayloadBytes int
	sum, partial uint32 // checksum as sent, and of the header alone
}

// AppendHeader appends the front of f, with the checksum over both parts. It panics when
// the tag is not valid or the payload has 2^32 bytes or more: callers check with
// Tag.Validate.
func AppendHeader(dst []byte, f Frame) []byte {
	if err := f.Tag.Validate(); err != nil {
		panic(err.Error())
	}
	if int64(len(f.Payload)) > math.MaxUint32 {
		panic(fmt.Sprintf("wire: payload of %d bytes", len(f.Payload)))
	}
	start := len(dst)
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, frameMagic)
	dst = append(dst, Version, byte(f.Tag.Kind), 0, 0)
	dst = le.AppendUint64(dst, uint64(f.Tag.Generation))
	dst = le.AppendUint64(dst, uint64(f.Tag.Step))
	dst = le.AppendUint32(dst, uint32(f.Tag.Replica))
	dst = le.AppendUint32(dst, uint32(f.Tag.Stage))
	dst = le.AppendUint32(dst, uint32(f.Tag.Index))
	dst = le.AppendUint32(dst, uint32(len(f.Payload)))
	sum := crc32.Update(crc32.Checksum(dst[start:], castagnoli), castagnoli, f.Payload)
	return le.AppendUint32(dst, sum)
}

// DecodeHeader reads a frame's front from the first HeaderBytes of b. A tensor of more
// than maxTensorBytes is refused, and so is any other payload above its kind's bound; the
// checksum is only known to hold once Verify has seen the payload.
func DecodeHeader(b []byte, maxTensorBytes int) (Header, error) {
	if len(b) < HeaderBytes {
		return Header{}, fmt.Errorf("%w: header of %d bytes, want %d", ErrLength, len(b), HeaderBytes)
	}
	le := binary.LittleEndian
	if magic := le.Uint32(b); magic != frameMagic {
		return Header{}, fmt.Errorf("%w: frame begins with %#08x", ErrMagic, magic)
	}
	if b[4] != Version {
		return Header{}, unknownVersion("frame", b[4])
	}
	if zero := le.Uint16(b[6:]); zero != 0 {
		return Header{}, fmt.Errorf("%w: reserved bytes %#04x", ErrValue, zero)
	}
	replica, stage, index := le.Uint32(b[24:]), le.Uint32(b[28:]), le.Uint32(b[32:])
	if replica > math.MaxInt32 || stage > math.MaxInt32 || index > math.MaxInt32 {
		return Header{}, fmt.Errorf("%w: replica %d stage %d index %d", ErrValue, replica, stage, index)
	}
	h := Header{
		Tag: Tag{
			Kind: Kind(b[5]), Generation: plan.Generation(le.Uint64(b[8:])), Step: plan.Step(le.Uint64(b[16:])),
			Replica: plan.Replica(replica), Stage: plan.Stage(stage), Index: int32(index),
		},
		sum: le.Uint32(b[checked:]), partial: crc32.Checksum(b[:checked], castagnoli),
	}
	if !h.Tag.Kind.Valid() {
		return Header{}, fmt.Errorf("%w: %d", ErrKind, b[5])
	}
	length, most := int64(le.Uint32(b[36:])), int64(h.Tag.Kind.maxPayload(maxTensorBytes))
	if length > most {
		return Header{}, fmt.Errorf("%w: %v of %d bytes, at most %d are accepted", ErrLength, h.Tag.Kind, length, most)
	}
	h.PayloadBytes = int(length)
	return h, nil
}

// Verify checks length and checksum of the payload that followed the header.
func (h Header) Verify(payload []byte) error {
	if len(payload) != h.PayloadBytes {
		return fmt.Errorf("%w: %v has %d bytes, header says %d", ErrLength, h.Tag, len(payload), h.PayloadBytes)
	}
	if sum := crc32.Update(h.partial, castagnoli, payload); sum != h.sum {
		return fmt.Errorf("%w: %v has %#08x, header says %#08x", ErrChecksum, h.Tag, sum, h.sum)
	}
	return nil
}
