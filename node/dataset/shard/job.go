package shard

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"pnode/node/dataset/files"
	"pnode/node/dataset/source"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
)

const (
	// partial is behind the name of a folder that is being made.
	partial = ".partial"
	// locked is behind the name of the folder whose owner makes the one without.
	locked = ".lock"
	// stateFile says how far an unfinished folder is.
	stateFile = "progress.json"
	// tokenizerDir holds the tokenizer's files.
	tokenizerDir = "tokenizer"
)

// state is how far an unfinished folder is: everything before At is in its shards.
type state struct {
	Version int `json:"version"`
	// Job identifies input and options.
	Job    plan.Hash `json:"job"`
	At     place     `json:"at"`
	Shards []Shard   `json:"shards"`
	// Skipped in the files before the one that At is in.
	Skipped source.Skipped `json:"skipped"`
}

// identity of a job: a folder begun with other input or options cannot be gone on with.
func (o Options) identity(files []source.File) (plan.Hash, error) {
	b, err := json.Marshal(struct {
		Version     int
		Tokenizer   plan.Hash
		EndOfText   int32
		ShardTokens int64
		Source      source.Options
		Files       []source.File
	}{Version, o.Tokenizer.Hash(), o.EndOfText, o.ShardTokens, o.Source, files})
	return plan.Hash(sha256.Sum256(b)), err
}

// begin finds how far the unfinished folder is.
func begin(dir string, job plan.Hash, width int) (state, error) {
	path := filepath.Join(dir, stateFile)
	b, err := files.Read(path, maxManifestBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return state{Version: Version, Job: job}, nil
	}
	if err != nil {
		return state{}, err
	}
	s, err := decodeState(b)
	if err != nil {
		return state{}, fmt.Errorf("%s: %w; remove the folder %s", path, err, dir)
	}
	if s.Job != job {
		return state{}, fmt.Errorf("%w: %s was begun with other files, tokenizer or options; remove it, or choose another --out", ErrOtherJob, dir)
	}
	folder := Folder{dir, Manifest{TokenBytes: width}}
	for _, shard := range s.Shards {
		if err := folder.checkSize(shard); err != nil {
			return state{}, fmt.Errorf("%w: remove the folder %s", err, dir)
		}
	}
	return s, nil
}

// decodeState is strict; the error wraps ErrBadManifest.
func decodeState(b []byte) (state, error) {
	var s state
	if err := strict.Decode(b, &s); err != nil {
		return s, fmt.Errorf("%w: %w", ErrBadManifest, err)
	}
	if s.Version != Version || s.At.File < 0 || s.At.Documents < 0 || len(s.Shards) > maxShards {
		return s, fmt.Errorf("%w: version %d at %+v", ErrBadManifest, s.Version, s.At)
	}
	for i, shard := range s.Shards {
		if shard.File != shardName(i) || shard.Tokens < 1 || shard.Tokens > maxTokens {
			return s, fmt.Errorf("%w: shard %d is %+v", ErrBadManifest, i, shard)
		}
	}
	return s, nil
}
