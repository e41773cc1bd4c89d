package shard

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
)

// writer writes one shard.
type writer struct {
	shard Shard
	width int
	file  *os.File
	sum   hash.Hash
	buf   *bufio.Writer // to both
	bytes []byte        // of the document being written
}

// createShard begins shard i of a folder, over what an interrupted run left of it.
func createShard(dir string, i, width int) (*writer, error) {
	file, err := os.Create(filepath.Join(dir, shardName(i)))
	if err != nil {
		return nil, err
	}
	w := &writer{shard: Shard{File: shardName(i)}, width: width, file: file, sum: sha256.New()}
	w.buf = bufio.NewWriterSize(io.MultiWriter(file, w.sum), 256<<10)
	if _, err := w.buf.Write(encodeHeader(width)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return w, nil
}

// document appends the tokens of a document and the one behind it.
func (w *writer) document(tokens []int32, endOfText int32, textBytes int) error {
	w.bytes = appendTokens(w.bytes[:0], tokens, w.width)
	w.bytes = appendTokens(w.bytes, []int32{endOfText}, w.width)
	w.shard.Counts = w.shard.plus(Counts{Documents: 1, Tokens: int64(len(tokens)) + 1, TextBytes: int64(textBytes)})
	_, err := w.buf.Write(w.bytes)
	return err
}

// finish makes the shard durable and says what it is.
func (w *writer) finish() (Shard, error) {
	err := w.buf.Flush()
	if err == nil {
		err = w.file.Sync()
	}
	if err := errors.Join(err, w.file.Close()); err != nil {
		return Shard{}, err
	}
	copy(w.shard.SHA256[:], w.sum.Sum(nil))
	return w.shard, nil
}

// headerBytes begin a shard: magic, version, width of a token.
const headerBytes = 16

var magic = [8]byte{'p', 'n', 'o', 'd', 'e', 't', 'o', 'k'}

// encodeHeader is the header of a shard with tokens of a width.
func encodeHeader(width int) []byte {
	b := append([]byte{}, magic[:]...)
	b = binary.LittleEndian.AppendUint32(b, Version)
	return binary.LittleEndian.AppendUint32(b, uint32(width))
}

// decodeHeader returns the width of a token; the error wraps ErrDamaged.
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
