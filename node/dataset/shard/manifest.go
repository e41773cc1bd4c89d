package shard

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"pnode/node/dataset/files"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
)

// Sentinels, wrapped by the errors of this package.
var (
	// ErrBadManifest: tokens.json is not what it should be.
	ErrBadManifest = errors.New("bad manifest")
	// ErrDamaged: a shard is not what the manifest says.
	ErrDamaged = errors.New("damaged shard")
	// ErrExists: the folder to make is there.
	ErrExists = errors.New("the folder is not empty")
	// ErrOtherJob: the unfinished folder was begun with other input.
	ErrOtherJob = errors.New("unfinished work on other input")
	// ErrUnfinished: the folder is one that Make works in.
	ErrUnfinished = errors.New("unfinished token shards")
	// ErrOptions: what is asked for cannot be.
	ErrOptions = errors.New("bad options")
	// ErrUnlike: folders that are to form one stream have different tokens.
	ErrUnlike = errors.New("token folders that do not match")
)

const (
	// ManifestFile marks that a folder holds token shards.
	ManifestFile = "tokens.json"
	// Version of the folder's layout.
	Version = 1

	maxManifestBytes = 64 << 20
	maxShards        = 1 << 18
)

// Manifest describes a folder of token shards.
type Manifest struct {
	Version int `json:"version"`
	// Tokenizer identifies the tokenizer: equal hashes, equal tokens.
	Tokenizer plan.Hash `json:"tokenizer"`
	// Vocab is one more than the greatest token there can be.
	Vocab int `json:"vocab"`
	// TokenBytes is the width of a token: 1, 2 or 4, little endian.
	TokenBytes int `json:"token_bytes"`
	// EndOfText is the token behind every document.
	EndOfText int32 `json:"end_of_text"`
	Counts
	// Skipped documents were malformed, not UTF-8, too long or no text; empty ones do not count.
	Skipped int64   `json:"skipped"`
	Shards  []Shard `json:"shards"`
}

// Counts are sizes of a folder or a shard.
type Counts struct {
	Documents int64 `json:"documents"`
	// Tokens include those of the documents' ends.
	Tokens int64 `json:"tokens"`
	// TextBytes is the size of the documents as UTF-8.
	TextBytes int64 `json:"text_bytes"`
}

func (c Counts) plus(d Counts) Counts {
	return Counts{c.Documents + d.Documents, c.Tokens + d.Tokens, c.TextBytes + d.TextBytes}
}

// Shard is one file of a folder.
type Shard struct {
	File string `json:"file"`
	Counts
	// SHA256 of the whole file.
	SHA256 plan.Hash `json:"sha256"`
}

// shardName is the file name of shard i.
func shardName(i int) string { return fmt.Sprintf("tokens-%05d.bin", i) }

// IsFolder reports whether a path is a folder with a manifest.
func IsFolder(path string) bool {
	st, err := os.Stat(filepath.Join(path, ManifestFile))
	return err == nil && st.Mode().IsRegular()
}

// CheckFinished refuses a folder that Make works in, or was working in when it ended: to whoever
// looks for text in it, its notes would be some. The error wraps ErrUnfinished.
func CheckFinished(path string) error {
	clean := filepath.Clean(path)
	if filepath.Ext(clean) != partial || IsFolder(clean) {
		return nil
	}
	for _, name := range []string{stateFile, shardName(0)} {
		if _, err := os.Stat(filepath.Join(clean, name)); err == nil {
			return fmt.Errorf("shard: %s: %w; give the same `pnode tokenize` again, which goes on with them", path, ErrUnfinished)
		}
	}
	return nil
}

// readManifest reads and checks the manifest in a folder.
func readManifest(dir string) (Manifest, error) {
	path := filepath.Join(dir, ManifestFile)
	b, err := files.Read(path, maxManifestBytes)
	if err != nil {
		return Manifest{}, err
	}
	m, err := decodeManifest(b)
	if err != nil {
		return Manifest{}, fmt.Errorf("%s: %w; make the folder again with `pnode tokenize`", path, err)
	}
	return m, nil
}

// decodeManifest is strict; the error wraps ErrBadManifest.
func decodeManifest(b []byte) (Manifest, error) {
	var m Manifest
	if err := strict.Decode(b, &m); err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrBadManifest, err)
	}
	if err := m.check(); err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrBadManifest, err)
	}
	return m, nil
}

func (m Manifest) check() error {
	switch {
	case m.Version != Version:
		return fmt.Errorf("version is %d, this program knows %d", m.Version, Version)
	case m.Vocab < 1 || m.Vocab > math.MaxInt32:
		return fmt.Errorf("vocab is %d: want 1 to %d", m.Vocab, math.MaxInt32)
	case m.TokenBytes != tokenBytes(m.Vocab):
		return fmt.Errorf("token_bytes is %d: want %d for a vocabulary of %d", m.TokenBytes, tokenBytes(m.Vocab), m.Vocab)
	case m.EndOfText < 0 || int(m.EndOfText) >= m.Vocab:
		return fmt.Errorf("end_of_text is %d: want a token below the vocabulary, %d", m.EndOfText, m.Vocab)
	case m.Skipped < 0:
		return fmt.Errorf("skipped is %d", m.Skipped)
	case len(m.Shards) == 0 || len(m.Shards) > maxShards:
		return fmt.Errorf("%d shards: want 1 to %d", len(m.Shards), maxShards)
	}
	var sum Counts
	for i, s := range m.Shards {
		if s.File != shardName(i) {
			return fmt.Errorf("shard %d has file %.40q: want %s", i, s.File, shardName(i))
		}
		// Every document has its end, every byte of text some token's worth of room.
		if s.Documents < 1 || s.Tokens < s.Documents || s.Tokens > maxTokens || s.TextBytes < 0 || s.TextBytes > maxTokens {
			return fmt.Errorf("shard %d: %d documents, %d tokens and %d bytes of text do not fit", i, s.Documents, s.Tokens, s.TextBytes)
		}
		sum = sum.plus(s.Counts)
	}
	if sum != m.Counts {
		return fmt.Errorf("the shards have %+v, the folder says %+v", sum, m.Counts)
	}
	return nil
}

// maxTokens of one shard: sums over maxShards stay below 2^60.
const maxTokens = 1 << 42

// tokenBytes is the width that holds a vocabulary.
func tokenBytes(vocab int) int {
	switch {
	case vocab <= 1<<8:
		return 1
	case vocab <= 1<<16:
		return 2
	}
	return 4
}

// Spec returns the part of the manifest that a run needs.
func (m Manifest) Spec() plan.TokenSpec {
	return plan.TokenSpec{
		WidthBytes: m.TokenBytes, Vocab: m.Vocab, EndOfText: m.EndOfText, Tokenizer: m.Tokenizer, Documents: m.Documents,
	}
}
