package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// textFile writes a file to score.
func textFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat("func main() { return }\n", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// figures are the numbers of eval's last line.
func figures(t *testing.T, dir, text string) string {
	t.Helper()
	code, out, stderr := pnode(t, "eval", "--dir", dir, text)
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	return strings.Join(strings.Fields(out)[6:], " ")
}

// generatedBy is what a model writes.
func generatedBy(t *testing.T, dir string, args ...string) string {
	t.Helper()
	code, out, stderr := pnode(t, append([]string{"generate", "--dir", dir, "--prompt", "func", "--tokens", "20"}, args...)...)
	if code != exitOK || !strings.HasPrefix(out, "func") || !strings.Contains(stderr, "20 tokens, ") {
		t.Fatalf("exit code %d: %q\n%s", code, out, stderr)
	}
	return out
}

// TestWhatARunLeavesIsUsable: what comes out is exactly the model that was trained, wherever
// it goes.
func TestWhatARunLeavesIsUsable(t *testing.T) {
	run, text := t.TempDir(), textFile(t)
	start(t, "train", "--config", runFile(t, 8), "--dir", run, "--json").finish(0)
	want, said := figures(t, run, text), generatedBy(t, run)
	if again := generatedBy(t, run); again != said {
		t.Errorf("the same seed gives %q and %q", said, again)
	}
	if other := generatedBy(t, run, "--seed", "2"); other == said {
		t.Errorf("another seed gives the same text %q", said)
	}
	out, imported := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "imported")
	for _, args := range [][]string{{"export", out, "--dir", run}, {"import", out, "--dir", imported}} {
		if code, _, stderr := pnode(t, args...); code != exitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, stderr)
		}
	}
	for _, dir := range []string{out, imported} {
		if got := figures(t, dir, text); got != want {
			t.Errorf("%s: %s, the run has %s", dir, got, want)
		}
		if got := generatedBy(t, dir); got != said {
			t.Errorf("%s says %q, the run %q", dir, got, said)
		}
	}
	if code, _, stderr := pnode(t, "export", out, "--dir", run); code == exitOK || !strings.Contains(stderr, "name a new or an empty one") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestGenerateFromAPipelinesFolder: no node of it has all layers.
func TestGenerateFromAPipelinesFolder(t *testing.T) {
	file, run := runFile(t, 6), t.TempDir()
	p := start(t, "train", "--config", file, "--dir", run, "--json", "--local", "3", "--replicas", "1", "--stages", "3")
	p.until(2)
	code, _, stderr := pnode(t, "generate", "--dir", run, "--prompt", "a")
	if code == exitOK {
		t.Error("generated from a run under way")
	} else if !strings.Contains(stderr, "runs") && !strings.Contains(stderr, "never begun") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	p.finish(0)
	generatedBy(t, run)
}

func TestCommandsOfModelsRefuse(t *testing.T) {
	empty := t.TempDir()
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"generate --dir " + empty, exitFailure, "holds neither a run nor a model"},
		{"generate", exitFailure, "no run found"},
		{"generate --tokens 0", exitUsage, "tokens is 0: want 1 or more"},
		{"generate --temperature -1", exitUsage, "temperature is -1"},
		{"generate --dir ../../checkpoint/huggingface/testdata/gpt2 --prompt a", exitFailure, "no tokenizer: the model's files lack tokenizer.json"},
		{"eval", exitUsage, "requires at least 1 arg"},
		{"eval --dir " + empty + " x.txt", exitFailure, "holds neither a run nor a model"},
		{"export", exitUsage, "accepts 1 arg"},
		{"export out --dtype f64", exitUsage, "dtype is f64: want one of f32, bf16, f16"},
		{"export out --shard-size 3", exitUsage, "shard-size is 3B: want 1MB or more"},
		{"import " + empty, exitUsage, "--dir is missing"},
		{"import " + empty + " --dir " + empty, exitFailure, "holds neither a run nor a model"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			code, _, stderr := pnode(t, strings.Fields(tt.args)...)
			if code != tt.code || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tt.want) {
				t.Errorf("exit code %d, want %d and one line with %q:\n%s", code, tt.code, tt.want, stderr)
			}
		})
	}
}
