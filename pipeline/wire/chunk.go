package wire

import (
	"encoding/binary"
	"fmt"

	"pnode/planner/plan"
)

// Bounds of the chunk service.
const (
	// MaxChunkHashes is how many chunks one request may name.
	MaxChunkHashes = 256
	// MaxChunkBytes is the size of the largest chunk.
	MaxChunkBytes = 4 << 20
	// ChunkCountBytes is the front of a request: the number of hashes that follow.
	ChunkCountBytes = 4
	// ChunkHeaderBytes is the front of each answer: status u8 and length u32.
	ChunkHeaderBytes = 5
)

// ChunkStatus begins the answer to each hash of a request. The zero value is refused.
type ChunkStatus uint8

// The answers.
const (
	_ ChunkStatus = iota
	// ChunkFound is followed by the chunk.
	ChunkFound
	// ChunkMissing means that the peer does not have the chunk, or not intact.
	ChunkMissing
)

// AppendChunkRequest appends the count and the hashes of a request; the caller keeps to
// MaxChunkHashes.
func AppendChunkRequest(dst []byte, hashes []plan.Hash) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(hashes)))
	for _, h := range hashes {
		dst = append(dst, h[:]...)
	}
	return dst
}

// DecodeChunkCount reads the front of a request: how many hashes follow.
func DecodeChunkCount(b []byte) (int, error) {
	if len(b) != ChunkCountBytes {
		return 0, fmt.Errorf("%w: chunk count of %d bytes, want %d", ErrLength, len(b), ChunkCountBytes)
	}
	n := binary.LittleEndian.Uint32(b)
	if n < 1 || n > MaxChunkHashes {
		return 0, fmt.Errorf("%w: request for %d chunks, 1 to %d are accepted", ErrLength, n, MaxChunkHashes)
	}
	return int(n), nil
}

// DecodeChunkHashes reads the hashes that fill b exactly.
func DecodeChunkHashes(b []byte) ([]plan.Hash, error) {
	const size = len(plan.Hash{})
	if len(b) == 0 || len(b)%size != 0 || len(b) > MaxChunkHashes*size {
		return nil, fmt.Errorf("%w: %d bytes of chunk hashes", ErrLength, len(b))
	}
	hashes := make([]plan.Hash, len(b)/size)
	for i := range hashes {
		copy(hashes[i][:], b[i*size:])
	}
	return hashes, nil
}

// AppendChunkHeader appends the front of an answer.
func AppendChunkHeader(dst []byte, status ChunkStatus, sizeBytes int) []byte {
	return binary.LittleEndian.AppendUint32(append(dst, byte(status)), uint32(sizeBytes))
}

// DecodeChunkHeader reads the front of an answer; the size is 0 for a missing chunk and
// at most MaxChunkBytes.
func DecodeChunkHeader(b []byte) (status ChunkStatus, sizeBytes int, err error) {
	if len(b) != ChunkHeaderBytes {
		return 0, 0, fmt.Errorf("%w: chunk header of %d bytes, want %d", ErrLength, len(b), ChunkHeaderBytes)
	}
	status = ChunkStatus(b[0])
	n := binary.LittleEndian.Uint32(b[1:])
	switch {
	case status != ChunkFound && status != ChunkMissing:
		return 0, 0, fmt.Errorf("%w: chunk status %d", ErrKind, b[0])
	case n > MaxChunkBytes || (status == ChunkMissing && n != 0):
		return 0, 0, fmt.Errorf("%w: chunk of %d bytes, at most %d are accepted", ErrLength, n, MaxChunkBytes)
	}
	return status, int(n), nil
}
