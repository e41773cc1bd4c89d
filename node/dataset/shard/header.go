package shard

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// headerBytes begin a shard: magic, version, width of a token.
const headerBytes = 16

var magic = [8]byte{'p', 'n', 'o', 'd', 'e', 't', 'o', 'k'}

// encodeHeader is the header of a shard with tokens of a width.
func encodeHeader(width int) []byte {
	b := append([]byte{}, magic[:]...)
	b = binary.LittleEndian.AppendUint32(b, Version)
	return binary.LittleEndian.AppendUint32(b, uint32(width))
}

// decodeHeader gives the width of a token; the error wraps ErrDamaged.
func decodeHeader(b []byte) (width int, err error) {
	if len(b) < headerBytes || !bytes.Equal(b[:8], magic[:]) {
		return 0, fmt.Errorf("%w: it does not begin like a shard", ErrDamaged)
	}
	version, w := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
	if version != Version {
		return 0, fmt.Errorf("%w: version %d, this program knows %d", ErrDamaged, version, Version)
	}
	if w != 1 && w != 2 && w != 4 {
		return 0, fmt.Errorf("%w: tokens of %d bytes, 1, 2 and 4 are known", ErrDamaged, w)
	}
	return int(w), nil
}

// appendTokens encodes tokens little endian in a width that holds them.
func appendTokens(dst []byte, tokens []int32, width int) []byte {
	for _, t := range tokens {
		switch width {
		case 1:
			dst = append(dst, byte(t))
		case 2:
			dst = binary.LittleEndian.AppendUint16(dst, uint16(t))
		default:
			dst = binary.LittleEndian.AppendUint32(dst, uint32(t))
		}
	}
	return dst
}
