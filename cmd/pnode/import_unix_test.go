//go:build unix

package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"pnode/node/weights"
)

// largeModel writes a GPT-2 of zeros that takes seconds to import: 1.2 GB in a file with a hole.
func largeModel(t *testing.T) string {
	t.Helper()
	const vocab, width, context, blocks = 256, 1024, 64, 24
	type tensor struct {
		DType   string  `json:"dtype"`
		Shape   []int   `json:"shape"`
		Offsets []int64 `json:"data_offsets"`
	}
	header, end := map[string]tensor{}, int64(0)
	add := func(name string, shape ...int) {
		size := int64(4)
		for _, d := range shape {
			size *= int64(d)
		}
		header[name] = tensor{"F32", shape, []int64{end, end + size}}
		end += size
	}
	norm := func(name string) { add(name+".weight", width); add(name+".bias", width) }
	dense := func(name string, in, out int) { add(name+".weight", in, out); add(name+".bias", out) }
	add("wte.weight", vocab, width)
	add("wpe.weight", context, width)
	for i := range blocks {
		block := fmt.Sprintf("h.%d.", i)
		norm(block + "ln_1")
		norm(block + "ln_2")
		dense(block+"attn.c_attn", width, 3*width)
		dense(block+"attn.c_proj", width, width)
		dense(block+"mlp.c_fc", width, 4*width)
		dense(block+"mlp.c_proj", 4*width, width)
	}
	norm("ln_f")
	config := fmt.Sprintf(`{"architectures":["GPT2LMHeadModel"],"model_type":"gpt2","activation_function":"gelu_new","vocab_size":%d,"n_embd":%d,"n_layer":%d,"n_head":16,"n_ctx":%[4]d,"n_positions":%[4]d}`,
		vocab, width, blocks, context)
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "model.safetensors")
	front := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600),
		os.WriteFile(file, front, 0o600), os.Truncate(file, int64(len(front))+end),
	)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestSIGTERMEndsAnImport: nothing of it stays, at the target or beside it.
func TestSIGTERMEndsAnImport(t *testing.T) {
	t.Parallel()
	into := filepath.Join(t.TempDir(), "imported")
	p := start(t, "import", largeModel(t), "--dir", into)
	deadline := time.After(endToEndTimeout)
	for begun := false; !begun; {
		select {
		case <-time.After(time.Millisecond):
			_, err := os.Stat(into + ".partial")
			begun = err == nil
		case <-deadline:
			t.Fatalf("the import has not begun:\n%s", p.stderr)
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.finish(exitFailure)
	p.stderr.await(t, "nothing was imported: there is no model in "+into)
	left, err := os.ReadDir(filepath.Dir(into))
	if err != nil || len(left) > 0 {
		t.Errorf("it left %v behind: %v", left, err)
	}
}

// TestInterruptEndsOpening: a model whose files cannot be read in time does not keep a command.
func TestInterruptEndsOpening(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	hangs := make(chan struct{})
	defer close(hangs)
	_, err := orInterrupted(ctx, func() (*weights.Model, error) {
		cancel()
		<-hangs
		return nil, errors.New("too late")
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted opening: %v", err)
	}
}
