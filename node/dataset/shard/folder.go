package shard

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"pnode/planner/plan"
)

// Folder is a folder of token shards.
type Folder struct {
	Dir      string
	Manifest Manifest
}

// Open reads a folder's manifest and looks at the sizes of its shards. Errors name the
// folder and wrap ErrBadManifest, ErrDamaged or the cause.
func Open(dir string) (Folder, error) {
	m, err := readManifest(dir)
	if err != nil {
		return Folder{}, fmt.Errorf("shard: open: %w", err)
	}
	f := Folder{dir, m}
	for _, s := range m.Shards {
		if err := f.checkSize(s); err != nil {
			return Folder{}, fmt.Errorf("shard: open: %w", err)
		}
	}
	return f, nil
}

func (f Folder) checkSize(s Shard) error {
	path := filepath.Join(f.Dir, s.File)
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%w: %w; %s", ErrDamaged, err, remedy)
	}
	if want := headerBytes + s.Tokens*int64(f.Manifest.TokenBytes); st.Size() != want {
		return fmt.Errorf("%w: %s has %d bytes, want %d; %s", ErrDamaged, path, st.Size(), want, remedy)
	}
	return nil
}

const remedy = "copy the folder again, or make it again with `pnode tokenize`"

// Bytes is the size of the tokens.
func (f Folder) Bytes() int64 { return f.Manifest.Tokens * int64(f.Manifest.TokenBytes) }

// Stream writes the tokens of all shards to w, and stops behind limit bytes. What has been
// written must be thrown away on an error: a shard's hash is known at its end only. A shard
// that the limit cuts is not checked. The error wraps ErrDamaged, or is that of w.
func (f Folder) Stream(w io.Writer, limit int64) error {
	for _, s := range f.Manifest.Shards {
		if limit <= 0 {
			return nil
		}
		n, err := f.stream(w, s, limit)
		if err != nil {
			return fmt.Errorf("shard: read: %w", err)
		}
		limit -= n
	}
	return nil
}

func (f Folder) stream(w io.Writer, s Shard, limit int64) (int64, error) {
	path := filepath.Join(f.Dir, s.File)
	file, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("%w: %w; %s", ErrDamaged, err, remedy)
	}
	defer func() { _ = file.Close() }() // only read
	sum := sha256.New()
	r := io.TeeReader(file, sum)
	header := make([]byte, headerBytes)
	if _, err := io.ReadFull(r, header); err != nil {
		return 0, fmt.Errorf("%w: %s: %w; %s", ErrDamaged, path, err, remedy)
	}
	width, err := decodeHeader(header)
	if err == nil && width != f.Manifest.TokenBytes {
		err = fmt.Errorf("%w: tokens of %d bytes, the manifest says %d", ErrDamaged, width, f.Manifest.TokenBytes)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w; %s", path, err, remedy)
	}
	size := s.Tokens * int64(width)
	n, err := io.CopyN(w, r, min(size, limit))
	if errors.Is(err, io.EOF) {
		return n, fmt.Errorf("%w: %s ends after %d of %d bytes; %s", ErrDamaged, path, n, size, remedy)
	}
	if err == nil && n == size && plan.Hash(sum.Sum(nil)) != s.SHA256 {
		err = fmt.Errorf("%w: %s has another hash than the manifest says; %s", ErrDamaged, path, remedy)
	}
	return n, err
}

// Match refuses folders that cannot form one stream. The error wraps ErrUnlike.
func Match(folders []Folder) error {
	for _, f := range folders[1:] {
		a, b := folders[0], f
		if a.Manifest.Tokenizer != b.Manifest.Tokenizer || a.Manifest.Vocab != b.Manifest.Vocab ||
			a.Manifest.TokenBytes != b.Manifest.TokenBytes || a.Manifest.EndOfText != b.Manifest.EndOfText {
			return fmt.Errorf("shard: %w: %s and %s were made with different tokenizers; tokenize all text with one", ErrUnlike, a.Dir, b.Dir)
		}
	}
	return nil
}
