package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"pnode/planner/plan"
)

// OpenBytes is the size of a stream's first bytes:
//
//	 0 magic u32 | 4 version u8 | 5 class u8 | 6 zero u16 | 8 generation u64 | 16 from u64
//	24 to u64 | 32 CRC-32C u32
const OpenBytes = 36

const openMagic = 0x534e5001 // bytes 01 'P' 'N' 'S'

// ProcessEpoch names one process of an endpoint: the next one has nothing of what another received. It is
// drawn at random and never 0.
type ProcessEpoch uint64

// Open says what a stream is for. Generation is 0 exactly for the class Chunks.
type Open struct {
	Class      Class
	Generation plan.Generation
	// From is the epoch of the endpoint that opens the stream, To the one that it believes to speak
	// to, 0 while it knows none.
	From, To ProcessEpoch
}

func (o Open) valid() error {
	if !o.Class.Valid() {
		return fmt.Errorf("%w: %d", ErrClass, uint8(o.Class))
	}
	if (o.Class == Chunks) != (o.Generation == 0) {
		return fmt.Errorf("%w: %v stream of generation %d", ErrValue, o.Class, o.Generation)
	}
	if o.From == 0 {
		return fmt.Errorf("%w: %v stream of process epoch 0", ErrValue, o.Class)
	}
	return nil
}

// AppendOpen appends the first bytes of a stream; it panics when o is not valid.
func AppendOpen(dst []byte, o Open) []byte {
	if err := o.valid(); err != nil {
		panic(err.Error())
	}
	start := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, openMagic)
	dst = append(dst, Version, byte(o.Class), 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(o.Generation))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(o.From))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(o.To))
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// DecodeOpen reads exactly OpenBytes.
func DecodeOpen(b []byte) (Open, error) {
	if len(b) != OpenBytes {
		return Open{}, fmt.Errorf("%w: stream opened with %d bytes, want %d", ErrLength, len(b), OpenBytes)
	}
	le := binary.LittleEndian
	if magic := le.Uint32(b); magic != openMagic {
		return Open{}, fmt.Errorf("%w: stream begins with %#08x", ErrMagic, magic)
	}
	if b[4] != Version {
		return Open{}, unknownVersion("stream", b[4])
	}
	if zero := le.Uint16(b[6:]); zero != 0 {
		return Open{}, fmt.Errorf("%w: reserved bytes %#04x", ErrValue, zero)
	}
	if sum := crc32.Checksum(b[:OpenBytes-4], castagnoli); sum != le.Uint32(b[OpenBytes-4:]) {
		return Open{}, fmt.Errorf("%w: stream header", ErrChecksum)
	}
	o := Open{
		Class: Class(b[5]), Generation: plan.Generation(le.Uint64(b[8:])),
		From: ProcessEpoch(le.Uint64(b[16:])), To: ProcessEpoch(le.Uint64(b[24:])),
	}
	return o, o.valid()
}
