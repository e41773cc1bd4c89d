package shard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"pnode/node/dataset/files"
	"pnode/node/dataset/source"
	"pnode/node/dataset/tokenizer"
	"pnode/planner/plan"
)

// DefaultShardTokens is the size at which a shard ends, with its last document.
const DefaultShardTokens = 64 << 20

// Options of Make.
type Options struct {
	// Out is the folder to make; Paths are the input, see source.Find.
	Out    string
	Paths  []string
	Source source.Options

	Tokenizer Tokenizer
	// EndOfText is the token behind every document.
	EndOfText int32
	// TokenizerFiles are copied into the folder.
	TokenizerFiles []TokenizerFile
	// ShardTokens ends a shard; 0 is DefaultShardTokens.
	ShardTokens int64
	// Threads encode; 0 is as many as the machine has cores.
	Threads int
	// Progress, if any, is told after every batch of documents.
	Progress func(Progress)
	// Lock, if any, makes a folder and takes it until release, beside Out: two calls that write
	// the same files would spoil them for each other.
	Lock func(dir string) (release func(), err error)

	batchBytes int // 0 is defaultBatchBytes
}

// Progress is how far Make is.
type Progress struct {
	// ReadBytes of the files' TotalBytes; ResumedBytes of them by an earlier call.
	ReadBytes, TotalBytes, ResumedBytes int64
	Counts
	Skipped source.Skipped
}

// Make makes a folder of token shards of all documents under the paths. When it is
// interrupted, the same call goes on behind the last complete shard. Errors name the place
// and wrap ErrExists, ErrOtherJob, ErrOptions, those of package source or of Lock, or the cause.
func Make(ctx context.Context, o Options) (Manifest, error) {
	m, err := newMaker(o)
	if err == nil {
		err = m.make(ctx)
	}
	if err != nil {
		return Manifest{}, fmt.Errorf("shard: make %s: %w", o.Out, err)
	}
	return m.manifest(), nil
}

// maker makes one folder. state says what is in finished shards; done what is in the
// one being written too.
type maker struct {
	Options
	dir     string
	job     plan.Hash
	width   int
	files   []source.File
	state   state
	skipped source.Skipped // so far, the file being read left out
	shard   *writer        // nil between shards
	batch   batch
	done    Progress
}

func newMaker(o Options) (*maker, error) {
	if o.ShardTokens == 0 {
		o.ShardTokens = DefaultShardTokens
	}
	if o.batchBytes == 0 {
		o.batchBytes = defaultBatchBytes
	}
	if o.ShardTokens < 1 || o.ShardTokens > maxTokens/2 {
		return nil, fmt.Errorf("%w: a shard of %d tokens: want 1 to %d", ErrOptions, o.ShardTokens, maxTokens/2)
	}
	if o.EndOfText < 0 || int(o.EndOfText) >= o.Tokenizer.Vocab() {
		return nil, fmt.Errorf("end-of-text token %d: want one below the vocabulary of %d", o.EndOfText, o.Tokenizer.Vocab())
	}
	if err := vacant(o.Out); err != nil {
		return nil, err
	}
	m := &maker{Options: o, dir: filepath.Clean(o.Out) + partial, width: tokenBytes(o.Tokenizer.Vocab())}
	var err error
	if m.files, _, err = source.Find(o.Paths); err != nil {
		return nil, err
	}
	m.job, err = o.identity(m.files)
	return m, err
}

// make makes the unfinished folder complete and gives it its name, while no other process does.
func (m *maker) make(ctx context.Context) error {
	if m.Lock != nil {
		release, err := m.Lock(filepath.Clean(m.Out) + locked)
		if err != nil {
			return err
		}
		defer release()
	}
	if err := vacant(m.Out); err != nil { // another process may have made it meanwhile
		return err
	}
	if err := os.MkdirAll(m.dir, 0o777); err != nil {
		return err
	}
	if err := m.run(ctx); err != nil {
		return err
	}
	if err := os.Remove(m.Out); err != nil && !errors.Is(err, fs.ErrNotExist) { // it is empty
		return err
	}
	if err := os.Rename(m.dir, m.Out); err != nil {
		return err
	}
	return os.Remove(filepath.Join(m.Out, stateFile))
}

// vacant refuses a folder with anything in it, as checkpoint.InNewFolder does.
func vacant(out string) error {
	entries, err := os.ReadDir(out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%w: it holds %s; name a new or an empty one", ErrExists, entries[0].Name())
	}
	return nil
}

func (m *maker) run(ctx context.Context) (err error) {
	if m.state, err = begin(m.dir, m.job, m.width); err != nil {
		return err
	}
	m.skipped = m.state.At.Skipped
	for i, f := range m.files {
		m.done.TotalBytes += f.SizeBytes
		if i < m.state.At.File {
			m.done.ReadBytes += f.SizeBytes
		}
	}
	m.done.ResumedBytes = m.done.ReadBytes
	for _, s := range m.state.Shards {
		m.done.Counts = m.done.plus(s.Counts)
	}
	for i := m.state.At.File; i < len(m.files); i++ {
		if err := m.readFile(ctx, i); err != nil {
			return m.abandon(err)
		}
	}
	if err := m.flush(ctx); err != nil {
		return m.abandon(err)
	}
	return m.complete()
}

// readFile reads the documents of file i that are not in shards yet.
func (m *maker) readFile(ctx context.Context, i int) error {
	before, resumed := m.done.ReadBytes, int64(0)
	if i == m.state.At.File {
		resumed = m.state.At.Documents
	}
	at := place{File: i, Skipped: m.skipped}
	skipped, err := source.Read(m.files[i], m.Source, func(document []byte, readBytes int64) error {
		at.Documents++
		if at.Documents <= resumed {
			m.done.ResumedBytes = before + readBytes
			return ctx.Err()
		}
		m.batch.add(document, at)
		m.done.ReadBytes = before + readBytes
		if len(m.batch.text) < m.batchBytes {
			return nil
		}
		return m.flush(ctx)
	})
	m.done.ReadBytes = before + m.files[i].SizeBytes
	if err != nil {
		return err
	}
	m.skipped = m.skipped.Plus(skipped)
	m.done.Skipped = m.skipped
	return nil
}

// flush encodes and writes the batch.
func (m *maker) flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := m.batch.encode(ctx, m.Tokenizer, cmp.Or(m.Threads, runtime.NumCPU())); err != nil {
		return err
	}
	for i, at := range m.batch.places {
		if err := m.write(m.batch.tokens[i], len(m.batch.document(i)), at); err != nil {
			return err
		}
	}
	m.batch.clear()
	if m.Progress != nil {
		m.Progress(m.done)
	}
	return nil
}

// write appends a document to the shard, and ends that when it is large enough.
func (m *maker) write(tokens []int32, textBytes int, at place) (err error) {
	if m.shard == nil {
		if m.shard, err = createShard(m.dir, len(m.state.Shards), m.width); err != nil {
			return err
		}
	}
	if err := m.shard.document(tokens, m.EndOfText, textBytes); err != nil {
		return err
	}
	m.done.Counts = m.done.plus(Counts{Documents: 1, Tokens: int64(len(tokens)) + 1, TextBytes: int64(textBytes)})
	if m.shard.shard.Tokens < m.ShardTokens {
		return nil
	}
	return m.endShard(at)
}

func (m *maker) endShard(at place) error {
	shard, err := m.shard.finish()
	m.shard = nil
	if err != nil {
		return err
	}
	m.state.Shards = append(m.state.Shards, shard)
	m.state.At = at
	b, err := json.Marshal(m.state)
	if err != nil {
		return err
	}
	return files.Replace(filepath.Join(m.dir, stateFile), append(b, '\n'))
}

// abandon closes the shard being written; it is written anew the next time.
func (m *maker) abandon(err error) error {
	if m.shard != nil {
		err = errors.Join(err, m.shard.file.Close())
	}
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w; the same command goes on with it", err)
	}
	return err
}

// complete ends the last shard and adds the manifest.
func (m *maker) complete() error {
	if m.shard != nil {
		if err := m.endShard(place{File: len(m.files), Skipped: m.skipped}); err != nil {
			return err
		}
	}
	if m.done.Documents == 0 {
		return fmt.Errorf("%w: %s hold no document: %v; name others", files.ErrNone, plan.Count(len(m.files), "file"), m.skipped)
	}
	if err := m.copyTokenizer(); err != nil {
		return err
	}
	b, err := json.MarshalIndent(m.manifest(), "", "  ")
	if err != nil {
		return err
	}
	return files.Replace(filepath.Join(m.dir, ManifestFile), append(b, '\n'))
}

func (m *maker) copyTokenizer() error {
	if len(m.TokenizerFiles) == 0 {
		return nil
	}
	dir := filepath.Join(m.dir, tokenizerDir)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for _, f := range m.TokenizerFiles {
		content, err := files.Read(f.Path, tokenizer.MaxFileBytes)
		if err == nil {
			err = files.Replace(filepath.Join(dir, f.Name), content)
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", f.Path, err)
		}
	}
	return nil
}

func (m *maker) manifest() Manifest {
	return Manifest{
		Version: Version, Tokenizer: m.Tokenizer.Hash(), Vocab: m.Tokenizer.Vocab(), TokenBytes: m.width,
		EndOfText: m.EndOfText, Counts: m.done.Counts, Skipped: m.skipped.Documents(), Shards: m.state.Shards,
	}
}
