package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/checkpoint"
	"pnode/node/dataset"
)

func TestTokenizeSaysWhatItWants(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(in, []byte("{\"text\":\"one\"}\n{\"body\":\"two\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "shards")
	for says, args := range map[string][]string{
		"--tokenizer and --out": {in},
		"name at least one":     {"--tokenizer", "bytes", "--out", out},
		"spelling":              {"--tokenizer", "bytes", "--out", out, in + "x"},
		"in.jsonl: line 2":      {"--tokenizer", "bytes", "--out", out, in},
		"no such file":          {"--tokenizer", filepath.Join(out, "none"), "--out", out, in},
	} {
		code, _, stderr := pnode(t, append([]string{"tokenize"}, args...)...)
		if code == exitOK || !strings.Contains(stderr, says) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit code %d, %q; want one line with %q", args, code, stderr, says)
		}
	}
	_ = os.RemoveAll(out + ".partial")
	code, stdout, stderr := pnode(t, "tokenize", "--tokenizer", "bytes", "--out", out, "--skip-malformed", in)
	if code != exitOK || !strings.Contains(stdout, ": 4 tokens of 1 document in 1 shard, vocabulary 256;") || !strings.Contains(stderr, "left out: 1 row without text (the first: "+in+": line 2: no text: there is no field \"text\" but body;") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if code, _, stderr = pnode(t, "tokenize", "--tokenizer", "bytes", "--out", out, in); code == exitOK || !strings.Contains(stderr, "name a new or an empty one") {
		t.Errorf("again: exit code %d, %s", code, stderr)
	}
}

func TestTokenizeSaysThatAColumnIsNotUsed(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in.txt")
	if err := os.WriteFile(in, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, column := range []string{"body", ""} {
		args := []string{"tokenize", "--tokenizer", "bytes", "--out", filepath.Join(t.TempDir(), "shards"), in}
		if column != "" {
			args = append(args, "--column", column)
		}
		if code, _, stderr := pnode(t, args...); code != exitOK || strings.Contains(stderr, "--column body is not used") != (column != "") {
			t.Errorf("column %q: exit code %d, %s", column, code, stderr)
		}
	}
}

func TestTokenizeInterruptedSaysHowToGoOn(t *testing.T) {
	in, out := filepath.Join(t.TempDir(), "in.txt"), filepath.Join(t.TempDir(), "shards")
	if err := os.WriteFile(in, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	root := environment{stdout: io.Discard, stderr: io.Discard}.rootCommand()
	root.SetArgs([]string{"tokenize", "--tokenizer", "bytes", "--out", out, in})
	if err := root.ExecuteContext(ctx); err == nil || !strings.Contains(sentence(err), "interrupted before it was done; the same command continues") {
		t.Error(err)
	}
}

// TestTokenizeOneAtATime: the same command given twice is told so, and what it has left unfinished
// is no text to train on.
func TestTokenizeOneAtATime(t *testing.T) {
	in, out := filepath.Join(t.TempDir(), "in.jsonl"), filepath.Join(t.TempDir(), "shards")
	text := strings.Repeat("{\"text\":\""+strings.Repeat("words ", 100)+"\"}\n", 20_000) // over a batch
	if err := os.WriteFile(in, []byte(text+strings.Repeat("{}\n", 300)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"tokenize", "--tokenizer", "bytes", "--shard-tokens", "1000000", "--out", out, in}
	release, err := checkpoint.Lock(out + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := pnode(t, args...); code != exitFailure || !strings.Contains(stderr, "in use by another process") {
		t.Errorf("beside another: exit code %d, %s", code, stderr)
	}
	release()
	if code, _, stderr := pnode(t, args...); code != exitFailure || !strings.Contains(stderr, "line 20001") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	code, _, stderr := pnode(t, "train", "--steps", "1", "--dir", filepath.Join(t.TempDir(), "run"), "--data", out+".partial")
	if code != exitUsage || !strings.Contains(stderr, "unfinished token shards; give the same `pnode tokenize` again") {
		t.Errorf("training on what is unfinished: exit code %d, %s", code, stderr)
	}
	if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(out + ".partial"); err != nil { // that of other input
		t.Fatal(err)
	}
	if code, _, stderr := pnode(t, args...); code != exitOK {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if _, err := os.Stat(out + ".lock"); err == nil {
		t.Error("the lock is left")
	}
}

// TestTrainOnTokenShards trains two local nodes on shards and asks for the ledger: the
// samples of one epoch, each once.
func TestTrainOnTokenShards(t *testing.T) {
	t.Parallel()
	text := filepath.Join(filepath.Dir(runFile(t, 1)), "text.txt")
	shards, dir := filepath.Join(t.TempDir(), "shards"), t.TempDir()
	start(t, "tokenize", "--tokenizer", "bytes", "--out", shards, "--shard-tokens", "50000", text).finish(0)
	p := start(t, "train", "--data", shards, "--dir", dir, "--local", "2", "--steps", "6", "--micros", "4", "--micro-batch", "1", "--sample-bytes", "20", "--json")
	if got := p.finish(0); len(got) != 6 {
		t.Errorf("%d steps, want 6", len(got))
	}
	l := start(t, "samples", "--dir", dir, "--step", "1", "--steps", "500", "--json")
	l.finish(0)
	seen := map[int64]bool{}
	lines := json.NewDecoder(&l.stdout)
	for {
		var s dataset.Sample
		if err := lines.Decode(&s); err != nil {
			t.Fatal(err)
		}
		if s.Epoch > 0 {
			break
		}
		if seen[s.Index] {
			t.Fatalf("%+v came before", s)
		}
		seen[s.Index] = true
	}
	for i := range int64(len(seen)) {
		if !seen[i] {
			t.Errorf("sample %d of %d is missing", i, len(seen))
		}
	}
	if len(seen) < 1000 {
		t.Errorf("%d samples in an epoch", len(seen))
	}
}
