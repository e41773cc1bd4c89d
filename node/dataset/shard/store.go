package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"pnode/node/dataset"
	"pnode/node/dataset/tokenizer"
	"pnode/planner"
)

// Store streams the tokens of folders that match, and the tokenizer's files, into chunks,
// as dataset.StoreChunks does, and gives the spec of the stream; the caller adds
// HeldOutPermille. The stream ends behind limitBytes.
func Store(ctx context.Context, folders []Folder, limitBytes int64, put func([]byte) (planner.Hash, error)) (planner.DataSpec, error) {
	if err := Match(folders); err != nil {
		return planner.DataSpec{}, err
	}
	var spec planner.DataSpec
	tokens := folders[0].Manifest.Spec()
	tokens.Documents = 0
	limitBytes -= limitBytes % int64(tokens.WidthBytes)
	var err error
	spec.Chunks, spec.SizeBytes, err = dataset.StoreChunks(ctx, put, func(w io.Writer) error {
		for _, f := range folders {
			if err := f.Stream(w, limitBytes); err != nil {
				return err
			}
			tokens.Documents += f.Manifest.Documents
			limitBytes = max(limitBytes-f.Bytes(), 0)
		}
		return nil
	})
	if err != nil {
		return planner.DataSpec{}, err
	}
	tokens.Files, err = folders[0].storeTokenizer(ctx, put)
	spec.Tokens = &tokens
	return spec, err
}

// storeTokenizer stores those files in the folder that a tokenizer consists of.
func (f Folder) storeTokenizer(ctx context.Context, put func([]byte) (planner.Hash, error)) ([]planner.DataFile, error) {
	var files []planner.DataFile
	for _, name := range tokenizer.Files {
		path := filepath.Join(f.Dir, tokenizerDir, name)
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("shard: store the tokenizer: %w", err)
		}
		d := planner.DataFile{Name: name}
		d.Chunks, d.SizeBytes, err = dataset.StoreChunks(ctx, put, func(w io.Writer) error {
			n, err := io.Copy(w, io.LimitReader(file, tokenizer.MaxFileBytes+1))
			if n > tokenizer.MaxFileBytes {
				err = fmt.Errorf("over %d bytes", tokenizer.MaxFileBytes)
			}
			return err
		})
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, fmt.Errorf("shard: store the tokenizer: %s: %w", path, err)
		}
		files = append(files, d)
	}
	return files, nil
}

// OpenTokenizer makes the tokenizer of a run's data out of its files. The error wraps
// ErrNoTokenizer when they do not describe the one that made the tokens.
func OpenTokenizer(ctx context.Context, src dataset.ChunkSource, spec planner.DataSpec) (tokenizer.Tokenizer, error) {
	if IsBytes(spec) {
		return tokenizer.Bytes{}, nil
	}
	files := map[string][]byte{}
	for _, f := range spec.Tokens.Files {
		content, err := readFile(ctx, src, f)
		if err != nil {
			return nil, fmt.Errorf("shard: tokenizer of the run: %s: %w", f.Name, err)
		}
		files[f.Name] = content
	}
	t, err := parse(files)
	if err != nil {
		return nil, fmt.Errorf("shard: tokenizer of the run: %w", err)
	}
	if t.Hash() != spec.Tokens.Tokenizer {
		return nil, fmt.Errorf("shard: %w: the run's tokens were made by %s, its files describe %s",
			ErrNoTokenizer, spec.Tokens.Tokenizer, planner.Hash(t.Hash()))
	}
	return t, nil
}

// ErrNoTokenizer: the run does not hold the tokenizer of its tokens.
var ErrNoTokenizer = errors.New("no tokenizer")

func parse(files map[string][]byte) (*tokenizer.BPE, error) {
	if text, ok := files["tokenizer.json"]; ok {
		return tokenizer.Parse(text)
	}
	vocab, merges := files["vocab.json"], files["merges.txt"]
	if vocab == nil || merges == nil {
		return nil, fmt.Errorf("%w: its files were not beside the token shards", ErrNoTokenizer)
	}
	return tokenizer.ParseGPT2(vocab, merges)
}

// readFile reads a file of a spec that may come from anyone.
func readFile(ctx context.Context, src dataset.ChunkSource, f planner.DataFile) ([]byte, error) {
	if f.SizeBytes < 0 || f.SizeBytes > tokenizer.MaxFileBytes || int64(len(f.Chunks)) != (f.SizeBytes+dataset.ChunkBytes-1)/dataset.ChunkBytes {
		return nil, fmt.Errorf("%w: %d bytes in %d chunks", ErrNoTokenizer, f.SizeBytes, len(f.Chunks))
	}
	content := make([]byte, 0, f.SizeBytes)
	for _, h := range f.Chunks {
		chunk, err := src.Chunk(ctx, h)
		if err != nil {
			return nil, err
		}
		content = append(content, chunk...)
	}
	if int64(len(content)) != f.SizeBytes {
		return nil, fmt.Errorf("%w: chunks of %d bytes, want %d", ErrNoTokenizer, len(content), f.SizeBytes)
	}
	return content, nil
}
