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
	"pnode/planner/plan"
)

// Store streams the tokens of folders that match, and the tokenizer's files, into chunks,
// as dataset.StoreChunks does, and gives the spec of the stream; the caller adds
// HeldOutPermille. The stream ends behind limitBytes.
func Store(ctx context.Context, folders []Folder, limitBytes int64, put func([]byte) (plan.Hash, error)) (plan.DataSpec, error) {
	if err := Match(folders); err != nil {
		return plan.DataSpec{}, err
	}
	var spec plan.DataSpec
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
		return plan.DataSpec{}, err
	}
	tokens.Files, err = folders[0].storeTokenizer(ctx, put)
	spec.Tokens = &tokens
	return spec, err
}

// storeTokenizer stores those files in the folder that a tokenizer consists of.
func (f Folder) storeTokenizer(ctx context.Context, put func([]byte) (plan.Hash, error)) ([]plan.DataFile, error) {
	var files []plan.DataFile
	for _, name := range tokenizer.Files {
		path := filepath.Join(f.Dir, tokenizerDir, name)
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("shard: store the tokenizer: %w", err)
		}
		d, err := dataset.StoreFile(ctx, put, name, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, fmt.Errorf("shard: store the tokenizer: %s: %w", path, err)
		}
		files = append(files, d)
	}
	return files, nil
}

// OpenTokenizer makes the tokenizer of a run's data out of its files. The error wraps
// ErrNoTokenizer when they do not describe the one that made the tokens.
func OpenTokenizer(ctx context.Context, src dataset.ChunkSource, spec plan.DataSpec) (tokenizer.Tokenizer, error) {
	if IsBytes(spec) {
		return tokenizer.Bytes{}, nil
	}
	files, err := dataset.ReadFiles(ctx, src, spec.Tokens.Files)
	if errors.Is(err, dataset.ErrBadSpec) {
		err = fmt.Errorf("%w: %w", ErrNoTokenizer, err)
	}
	if err != nil {
		return nil, fmt.Errorf("shard: tokenizer of the run: %w", err)
	}
	t, err := tokenizer.FromFiles(files)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: its files were not beside the token shards", ErrNoTokenizer)
	}
	if err != nil {
		return nil, fmt.Errorf("shard: tokenizer of the run: %w", err)
	}
	if t.Hash() != spec.Tokens.Tokenizer {
		return nil, fmt.Errorf("shard: %w: the run's tokens were made by %s, its files describe %s",
			ErrNoTokenizer, spec.Tokens.Tokenizer, plan.Hash(t.Hash()))
	}
	return t, nil
}

// ErrNoTokenizer: the run does not hold the tokenizer of its tokens.
var ErrNoTokenizer = errors.New("no tokenizer")
