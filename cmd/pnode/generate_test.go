package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/checkpoint/safetensors"
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
	for _, storage := range []string{"f32", "bf16"} {
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
