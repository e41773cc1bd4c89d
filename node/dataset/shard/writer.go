package shard

import (
	"bufio"
	"crypto/sha256"
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

func copyFile(to, from string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // only read
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, source)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}
