package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/checkpoint"
	"pnode/node/config"
	"pnode/node/dataset"
	"pnode/node/dataset/shard"
	"pnode/node/dataset/synthetic"
	"pnode/node/dataset/tokenizer"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// pair is a store in dir, and how to fill it from another member that has all chunks.
func pair(t *testing.T, dir string, chunks ...string) (here Chunks, hashes []plan.Hash, asked *[]plan.Hash) {
	t.Helper()
	open := func(dir string) *checkpoint.Store {
		s, err := checkpoint.Open(dir, checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	there := open(t.TempDir())
	for _, c := range chunks {
		h, err := there.PutChunk([]byte(c))
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, h)
	}
	here.Store, asked = open(dir), new([]plan.Hash)
	here.Fetch = func(_ context.Context, want []plan.Hash, _ time.Duration) error {
		for _, h := range want {
			if here.Store.HasChunk(h) {
				continue
			}
			*asked = append(*asked, h)
			b, err := there.Chunk(h)
			if err := errors.Join(err, here.Store.PutNamed(h, b)); err != nil {
				return err
			}
		}
		return nil
	}
	return here, hashes, asked
}

// TestTextComesFromOthers: a chunk that is missing here or damaged is fetched when it is
// read, and only then.
func TestTextComesFromOthers(t *testing.T) {
	dir := t.TempDir()
	here, hashes, asked := pair(t, dir, "one", "two")
	for range 2 {
		b, err := here.Chunk(t.Context(), hashes[1])
		if err != nil || string(b) != "two" {
			t.Fatalf("%q, %v", b, err)
		}
	}
	if !slices.Equal(*asked, hashes[1:]) {
		t.Errorf("asked for %v, want only %v", *asked, hashes[1])
	}
	name := hashes[1].String()
	if err := os.WriteFile(filepath.Join(dir, "chunks", name[:2], name), []byte("owt"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := here.Chunk(t.Context(), hashes[1]); err != nil || string(b) != "two" || len(*asked) != 2 {
		t.Errorf("damaged: %q, %v, asked %d times", b, err, len(*asked))
	}
	if _, err := here.Chunk(t.Context(), plan.Hash{1}); !errors.Is(err, checkpoint.ErrNotFound) {
		t.Errorf("a chunk that nobody has: %v", err)
	}
}

// TestMirrorKeepsTheOrder: what is missing comes in the order that the steps want.
func TestMirrorKeepsTheOrder(t *testing.T) {
	var texts []string
	for i := range 3*mirrorBatch + 1 {
		texts = append(texts, fmt.Sprint("chunk ", i))
	}
	here, hashes, asked := pair(t, t.TempDir(), texts...)
	if _, err := here.Chunk(t.Context(), hashes[5]); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(hashes)
	want := slices.DeleteFunc(slices.Clone(hashes), here.Store.HasChunk)
	*asked = nil
	here.Mirror(t.Context(), hashes, slog.New(slog.DiscardHandler))
	if !slices.Equal(*asked, want) {
		t.Errorf("fetched %d chunks, want %d, or in another order", len(*asked), len(want))
	}
	// What nobody has is tried again later, until the node ends.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	here.Mirror(ctx, []plan.Hash{{1}}, slog.New(slog.DiscardHandler))
}

// TestImportShards brings a folder of token shards into a store: the spec says what they
// are, and the notice too.
func TestImportShards(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.txt"), filepath.Join(dir, "shards")
	if err := os.WriteFile(in, bytes.Repeat([]byte("a line of text\n"), 500), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := shard.Make(t.Context(), shard.Options{Out: out, Paths: []string{in}, Tokenizer: tokenizer.Bytes{}}); err != nil {
		t.Fatal(err)
	}
	here, _, _ := pair(t, t.TempDir())
	cfg := config.Default()
	cfg.Data = []string{out}
	notice := ""
	spec, err := (&Source{Config: cfg, Store: here.Store, Notice: func(s string) { notice = s }}).storeText(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if spec.TokenCount() != 7501 || spec.HeldOutPermille != heldOutPermille || spec.EndOfText() != 0 || spec.Tokens.Documents != 1 {
		t.Errorf("spec %+v", spec)
	}
	if want := "training on 7,501 tokens of 1 document in token shards, vocabulary 256"; notice != want {
		t.Errorf("notice %q, want %q", notice, want)
	}
	d, err := dataset.Open(here, spec, dataset.Window{Context: 100, StepRows: 1, Vocab: 256})
	if err != nil {
		t.Fatal(err)
	}
	if tokens, _, err := d.Micro(t.Context(), 1, 0, 1); err != nil || len(tokens) != 100 {
		t.Errorf("%d tokens, %v", len(tokens), err)
	}
	cfg.Data = []string{out, in}
	if _, err := (&Source{Config: cfg, Store: here.Store}).storeText(t.Context()); !errors.Is(err, errMixedData) {
		t.Errorf("shards and text: %v", err)
	}
}

func TestDocumentMaskNeedsDocuments(t *testing.T) {
	spec := plan.RunSpec{
		Model: model.Config{Vocab: 256, Context: 8, Blocks: 1, Heads: 1, Channels: 8},
		Train: plan.TrainSpec{Micros: 1, MicroBatch: 1, DocumentMask: true},
		Data:  plan.DataSpec{Chunks: make([]plan.Hash, 1), SizeBytes: 1000, HeldOutPermille: 50},
	}
	err := checkText(spec)
	if !errors.Is(err, config.ErrInvalid) || !strings.HasPrefix(err.Error(), "config: document_mask is true, but no end-of-text token") {
		t.Errorf("text: %v", err)
	}
	spec.Data.Tokens = &plan.TokenSpec{WidthBytes: 1, Vocab: 256, EndOfText: plan.NoToken}
	if err := checkText(spec); !errors.Is(err, config.ErrInvalid) {
		t.Errorf("shards without documents: %v", err)
	}
	spec.Data.Tokens.EndOfText = 255
	if err := checkText(spec); err != nil {
		t.Errorf("shards of documents: %v", err)
	}
}

// TestTheTextIsRefusedWhereItHasNoRoom: before any of it is fetched, with what all of it takes.
func TestTheTextIsRefusedWhereItHasNoRoom(t *testing.T) {
	store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{ReserveBytes: 1 << 60})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c := Chunks{Store: store, Fetch: func(context.Context, []plan.Hash, time.Duration) error {
		t.Error("chunks are asked for")
		return nil
	}}
	run := plan.RunSpec{
		Model: model.Config{Vocab: 256, Context: 8, Blocks: 1, Heads: 1, Channels: 8},
		Train: plan.TrainSpec{Micros: 1, MicroBatch: 1},
		Data:  plan.DataSpec{Chunks: []plan.Hash{{1}, {2}, {3}}, SizeBytes: 2*checkpoint.ChunkBytes + 1<<20, HeldOutPermille: 50},
	}
	_, err = c.OpenText(t.Context(), run)
	if !errors.Is(err, checkpoint.ErrDiskFull) || !strings.HasPrefix(err.Error(), "ingest: the run's text: disk full: "+plan.Size(run.Data.SizeBytes)+" wanted, ") {
		t.Error(err)
	}
}

// TestATextIsWrittenWhereThereIsNone: without --data and without Go a run still has something to train on, the same for each, and says what.
func TestATextIsWrittenWhereThereIsNone(t *testing.T) {
	t.Setenv("GOROOT", "")
	t.Setenv("PATH", t.TempDir())
	spec := func(limit config.Bytes) (plan.DataSpec, string) {
		t.Helper()
		store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		var said string
		s := Source{Config: config.Default(), Store: store, Notice: func(line string) { said = line }}
		s.DataLimit = limit
		data, err := s.storeText(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return data, said
	}
	whole, said := spec(0)
	if whole.SizeBytes < 1e6 || whole.SizeBytes > synthetic.Bytes {
		t.Errorf("%d bytes, want 1 MB to %d bytes", whole.SizeBytes, synthetic.Bytes)
	}
	for _, want := range []string{"training on sums", "no --data given", "4.0 MB", fmt.Sprintf("%.2f", synthetic.Floor())} {
		if !strings.Contains(said, want) {
			t.Errorf("it says %q, not %q", said, want)
		}
	}
	if again, _ := spec(0); !slices.Equal(again.Chunks, whole.Chunks) {
		t.Error("a second run gets another text")
	}
	if part, _ := spec(10 * config.KB); part.SizeBytes > 10_000 || part.SizeBytes < 9_900 {
		t.Errorf("with a limit of 10 kB it has %d bytes", part.SizeBytes)
	}
}

// TestUnusedColumn: who names a column is told where nothing has it, and all is read as text.
func TestUnusedColumn(t *testing.T) {
	for content, unused := range map[string]bool{
		`{"body":"some text"}`: false,
		`{"text":"some text"}`: true,
		"some text":            true,
	} {
		dir := t.TempDir()
		here, _, _ := pair(t, filepath.Join(dir, "store"))
		path := filepath.Join(dir, "in.txt")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, column := range []string{"body", ""} {
			cfg := config.Default()
			cfg.Data, cfg.Column = []string{path}, column
			said := ""
			if _, err := (&Source{Config: cfg, Store: here.Store, Notice: func(line string) { said += line + "\n" }}).storeText(t.Context()); err != nil {
				t.Fatal(err)
			}
			if told := strings.Contains(said, "--column body is not used: no file of the data has such a column\n"); told != (unused && column != "") {
				t.Errorf("%s with --column %q: %q", content, column, said)
			}
		}
	}
}
