package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// MaxPieceBytes bounds the payload of one piece: all pieces of a message have
// this size but the last one.
const MaxPieceBytes = 32 << 10

// PieceBytes is the size of what goes before a piece:
//
//	0 the frame's header | 44 sequence number u64 | 52 offset u32 | 56 CRC-32C u32
//
// The checksum covers bytes [0,56); that of the frame's header covers the whole payload.
const PieceBytes = HeaderBytes + 16

// Piece is a part of a frame on one of several streams that share a class. Every piece
// repeats the frame's header, so that whichever comes first announces the frame.
type Piece struct {
	Header Header
	// Seq numbers the frames of a session from one peer in one class, from 1. It is 0 for
	// the kinds that are not numbered.
	Seq uint64
	// Offset into the payload, a multiple of MaxPieceBytes.
	Offset int
}

// Numbered reports whether frames of a kind are counted, kept and sent again: all but Heartbeat and
// Padding.
func (k Kind) Numbered() bool { return k != Heartbeat && k != Padding }

// Bytes returns how many bytes of the payload follow.
func (p Piece) Bytes() int { return min(MaxPieceBytes, p.Header.PayloadBytes-p.Offset) }

// Pieces returns how many pieces a payload has; an empty one travels in one piece.
func Pieces(payloadBytes int) int {
	return max(1, (payloadBytes+MaxPieceBytes-1)/MaxPieceBytes)
}

// AppendPiece appends what goes before a piece; header is the frame's, from AppendHeader.
func AppendPiece(dst, header []byte, seq uint64, offset int) []byte {
	start := len(dst)
	dst = append(dst, header...)
	dst = binary.LittleEndian.AppendUint64(dst, seq)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(offset))
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// DecodePiece reads exactly PieceBytes, with the bounds of DecodeHeader.
func DecodePiece(b []byte, maxTensorBytes int) (Piece, error) {
	if len(b) != PieceBytes {
		return Piece{}, fmt.Errorf("%w: piece header of %d bytes, want %d", ErrLength, len(b), PieceBytes)
	}
	h, err := DecodeHeader(b[:HeaderBytes], maxTensorBytes)
	if err != nil {
		return Piece{}, err
	}
	le := binary.LittleEndian
	if sum := crc32.Checksum(b[:PieceBytes-4], castagnoli); sum != le.Uint32(b[PieceBytes-4:]) {
		return Piece{}, fmt.Errorf("%w: piece of %v", ErrChecksum, h.Tag)
	}
	p := Piece{Header: h, Seq: le.Uint64(b[HeaderBytes:]), Offset: int(le.Uint32(b[HeaderBytes+8:]))}
	if p.Offset%MaxPieceBytes != 0 || p.Offset/MaxPieceBytes >= Pieces(h.PayloadBytes) {
		return Piece{}, fmt.Errorf("%w: piece at %d of the %d bytes of %v", ErrValue, p.Offset, h.PayloadBytes, h.Tag)
	}
	if (p.Seq != 0) != h.Tag.Kind.Numbered() {
		return Piece{}, fmt.Errorf("%w: %v with sequence number %d", ErrValue, h.Tag, p.Seq)
	}
	return p, nil
}

// AckBytes is the size of an acknowledgement: how many numbered pieces of a stream have been
// taken in, u64.
const AckBytes = 8

// AppendAck appends an acknowledgement.
func AppendAck(dst []byte, pieces uint64) []byte {
	return binary.LittleEndian.AppendUint64(dst, pieces)
}

// DecodeAck reads exactly AckBytes; the sender knows how many pieces there can be.
func DecodeAck(b []byte) (uint64, error) {
	if len(b) != AckBytes {
		return 0, fmt.Errorf("%w: acknowledgement of %d bytes, want %d", ErrLength, len(b), AckBytes)
	}
	return binary.LittleEndian.Uint64(b), nil
}
