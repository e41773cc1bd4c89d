package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/checkpoint/safetensors"
	"pnode/kernels"
	"pnode/pipeline/model"
)

// TestGenerateWritesEachTextAsAlone: several texts at a time are those that single commands write, of one prompt and of lines.
func TestGenerateWritesEachTextAsAlone(t *testing.T) {
	t.Parallel()
	dir, lines := family(t, model.Config{Vocab: 256, Context: 16, Blocks: 1, Heads: 1, Channels: 8}, safetensors.F32), filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(lines, []byte("one\n\nanother\r\nx"), 0o600); err != nil {
		t.Fatal(err)
	}
	generate := func(args ...string) string {
		code, out, stderr := pnode(t, append([]string{"generate", "--dir", dir, "--tokens", "9", "--devices", "cpu"}, args...)...)
		if code != exitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, stderr)
		}
		return out
	}
	for _, storage := range []string{"f32", "bf16", "int8"} {
		for flag, prompts := range map[string][]string{"--prompt=ab": {"ab", "ab", "ab"}, "--prompts=" + lines: {"one", "another", "x"}} {
			var want strings.Builder
			for i, prompt := range prompts {
				seed := fmt.Sprint(5 + i)
				fmt.Fprintf(&want, "--- text %d of 3, seed %s\n%s", i+1, seed, generate("--prompt", prompt, "--seed", seed, "--storage", storage))
			}
			if got := generate(flag, "--batch", "3", "--seed", "5", "--storage", storage); got != want.String() {
				t.Errorf("%s in %s: %q, want %q", flag, storage, got, want.String())
			}
			if !strings.HasPrefix(flag, "--prompts") {
				continue
			}
			if got := generate(flag, "--batch", "2", "--seed", "5", "--storage", storage); got != want.String() {
				t.Errorf("two of %s at a time, in %s: %q, want %q", flag, storage, got, want.String())
			}
		}
	}
}

// TestStorageThatADeviceLacks: the error names the flag, its value, the device and what to take instead.
func TestStorageThatADeviceLacks(t *testing.T) {
	lacking := fmt.Errorf("model: %w", kernels.ErrUnsupported)
	for _, c := range []struct {
		storage model.Storage
		err     error
		want    string
	}{
		{model.StorageInt8, lacking, `--storage is "int8", which cuda:0 cannot compute: take --storage bf16 or f32, or --devices cpu: `},
		{model.StorageBF16, lacking, `--storage is "bf16", which cuda:0 cannot compute: take --storage f32: `},
		{model.StorageF32, lacking, ""},
		{model.StorageInt8, kernels.ErrLost, ""},
	} {
		got := withOtherStorage(c.err, c.storage, "cuda:0")
		if got.Error() != c.want+c.err.Error() || !errors.Is(got, c.err) {
			t.Errorf("%v, %v: %q, want %q and the error", c.storage, c.err, got, c.want)
		}
	}
	if err := withOtherStorage(nil, model.StorageInt8, "cuda:0"); err != nil {
		t.Error(err)
	}
}
