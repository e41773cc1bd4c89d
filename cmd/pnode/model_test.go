package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"pnode/checkpoint"
	"pnode/checkpoint/huggingface"
	"pnode/checkpoint/safetensors"
	"pnode/node/dataset/tokenizer"
	"pnode/pipeline/model"
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
func figures(t *testing.T, dir, text string, args ...string) string {
	t.Helper()
	code, out, stderr := pnode(t, append([]string{"eval", "--dir", dir, text}, args...)...)
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	return strings.Join(strings.Fields(out)[6:], " ")
}

// generatedBy returns the text that a model writes.
func generatedBy(t *testing.T, dir string, args ...string) string {
	t.Helper()
	code, out, stderr := pnode(t, append([]string{"generate", "--dir", dir, "--prompt", "func", "--tokens", "20"}, args...)...)
	if code != exitOK || !strings.HasPrefix(out, "func") || !strings.Contains(stderr, "20 tokens, ") {
		t.Fatalf("exit code %d: %q\n%s", code, out, stderr)
	}
	return out
}

// TestEvalCountsRightDigits: of the program's own text, which has sums, and not of a text without any.
func TestEvalCountsRightDigits(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	start(t, "train", "--config", runFile(t, 4), "--dir", run, "--json").finish(0)
	code, out, stderr := pnode(t, "eval", "--dir", run, "--own-text")
	if counted := regexp.MustCompile(`RIGHT DIGITS\nown text .* \d+\.\d% of \d{4}\n$`); code != exitOK || !counted.MatchString(out) {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	if code, out, stderr = pnode(t, "eval", "--dir", run, textFile(t)); code != exitOK || strings.Contains(out, "DIGITS") {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
}

// TestWhatARunLeavesIsUsable: what comes out is exactly the model that was trained, wherever
// it goes.
func TestWhatARunLeavesIsUsable(t *testing.T) {
	t.Parallel()
	run, text := t.TempDir(), textFile(t)
	start(t, "train", "--config", runFile(t, 8), "--dir", run, "--json").finish(0)
	if runtime.GOOS != "windows" { // elsewhere others may read it at the same time
		beside, err := checkpoint.Open(filepath.Join(run, "store"), checkpoint.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer beside.Close()
	}
	want, said := figures(t, run, text), generatedBy(t, run)
	if again := generatedBy(t, run); again != said {
		t.Errorf("the same seed gives %q and %q", said, again)
	}
	if other := generatedBy(t, run, "--seed", "2"); other == said {
		t.Errorf("another seed gives the same text %q", said)
	}
	if code, planned, stderr := pnode(t, "plan", "--dir", run); code != exitOK || !strings.HasPrefix(planned, "the run in "+run+": ") || !strings.Contains(planned, "\n8 steps") {
		t.Errorf("the plan of the run, exit code %d: %s%s", code, planned, stderr)
	}
	if code, _, stderr := pnode(t, "status", "--dir", run); code != exitUnreachable || !strings.Contains(stderr, "finished at step 8: go on with `pnode train --resume --steps 16 --dir "+run) {
		t.Errorf("the status of a finished run, exit code %d: %s", code, stderr)
	}
	if code, listed, stderr := pnode(t, "ps"); code != exitOK || !strings.Contains(listed, "finished at step 8 ") || !strings.Contains(listed, " in "+run+"\n") {
		t.Errorf("the nodes of this machine, exit code %d: %s%s", code, listed, stderr)
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
	t.Parallel()
	file, run := runFile(t, 6), t.TempDir()
	p := start(t, "train", "--config", file, "--dir", run, "--json", "--local", "3", "--replicas", "1", "--stages", "3")
	p.until(2)
	code, _, stderr := pnode(t, "generate", "--dir", run, "--prompt", "a")
	if code == exitOK {
		t.Error("generated from a run under way")
	} else if !strings.Contains(stderr, "runs") && !strings.Contains(stderr, "has begun to train") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	p.finish(0)
	generatedBy(t, run)
}

func TestCommandsOfModelsRefuse(t *testing.T) {
	empty, many := t.TempDir(), filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(many, []byte(strings.Repeat("a\n", mostLines+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	sound := family(t, model.Config{Vocab: 256, Context: 16, Blocks: 1, Heads: 1, Channels: 8}, safetensors.F32)
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"eval --dir " + sound + " --window 17 main.go", exitUsage, "17 tokens: want 1 to 16"},
		{"eval --dir " + sound + " main.go /no/such.txt", exitUsage, "/no/such.txt: no such file or folder"},
		{"eval --dir " + sound + " main.go " + empty, exitUsage, empty + " is a folder; name the files in it"},
		{"eval --threads -1 main.go", exitUsage, "--threads is -1: want 0 (all) to 4096"},
		{"generate --dir " + empty, exitUsage, "holds neither a run nor a model"},
		{"generate", exitUsage, "no run found"},
		{"generate --batch 0", exitUsage, "--batch is 0: want 1 to 1024"},
		{"generate --prompt a --prompts b", exitUsage, "leave one of them out"},
		{"generate --prompts=", exitUsage, "--prompts: open"},
		{"generate --prompts " + many, exitUsage, "has 100,001 lines: split it into files of at most 100,000"},
		{"generate --prompt a --batch 8 --temperature 0", exitUsage, "writes the same text 8 times"},
		{"generate --prompts " + empty + "/none", exitUsage, "--prompts: open"},
		{"generate --storage f8", exitUsage, "--storage is \"f8\": want f32, bf16 or int8"},
		{"generate --tokens 0", exitUsage, "--tokens is 0: want 1 or more"},
		{"generate --temperature -1", exitUsage, "temperature is -1"},
		{"generate --dir ../../checkpoint/huggingface/testdata/gpt2 --prompt a", exitFailure, "no tokenizer: the model's files lack tokenizer.json"},
		{"eval", exitUsage, "name at least one file of text"},
		{"eval --dir " + empty + " x.txt", exitUsage, "holds neither a run nor a model"},
		{"export", exitUsage, "want one argument, the folder to write: got 0"},
		{"export out --dtype f64", exitUsage, "--dtype is f64: want one of f32, bf16, f16"},
		{"export out --shard-size 3", exitUsage, "--shard-size is 3B: want 1MB or more"},
		{"import " + empty, exitUsage, "--dir is missing"},
		{"import " + empty + " --dir " + empty, exitUsage, "holds neither a run nor a model"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			code, _, stderr := pnode(t, strings.Fields(tt.args)...)
			if code != tt.code || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, tt.want) {
				t.Errorf("exit code %d, want %d and one line with %q:\n%s", code, tt.code, tt.want, stderr)
			}
		})
	}
	for _, args := range []string{
		"train", "join", "plan", "status", "watch", "invite", "leave", "checkpoints ls", "checkpoints verify", "samples",
		"generate", "eval a", "export a", "import a",
	} {
		code, _, stderr := pnode(t, append(strings.Fields(args), "--dir", "")...)
		if code != exitUsage || !strings.Contains(stderr, "--dir is empty: name a folder") {
			t.Errorf("%s in no folder: exit code %d, %s", args, code, stderr)
		}
	}
	for _, command := range []string{"export", "import", "eval", "tokenize"} {
		if code, _, stderr := pnode(t, command, ""); code != exitUsage || !strings.Contains(stderr, "an argument is empty") {
			t.Errorf("%s of nothing: exit code %d, %s", command, code, stderr)
		}
	}
}

// TestImportWithoutWords: a damaged tokenizer is refused, one of a kind that is not supported is
// told, both without the names of packages.
func TestImportWithoutWords(t *testing.T) {
	for text, want := range map[string]struct {
		code         int
		says, advice string
	}{
		`{"version`:        {exitUsage, "tokenizer.json: not a valid tokenizer file: its JSON is cut off", "get that file again, or take the tokenizer's files out of the folder"},
		`{"version":"99"}`: {exitOK, "warning: no tokenizer: tokenizer.json: not supported: ", "text cannot be turned into this model's tokens"},
	} {
		dir, into := family(t, model.Config{Vocab: 256, Context: 16, Blocks: 1, Heads: 1, Channels: 8}, safetensors.F32), filepath.Join(t.TempDir(), "imported")
		if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, stderr := pnode(t, "import", dir, "--dir", into)
		if code != want.code || !strings.Contains(stderr, want.says) || !strings.Contains(stderr, want.advice) || strings.Contains(stderr, "weights: ") {
			t.Errorf("%s: exit code %d: %s, want %+v", text, code, stderr, want)
		}
		if _, err := os.Stat(into); (err == nil) != (code == exitOK) {
			t.Errorf("%s: exit code %d, the folder: %v", text, code, err)
		}
	}
}

// family writes a random model of bytes in Hugging Face's layout.
func family(t *testing.T, c model.Config, dtype safetensors.DType) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	err := huggingface.Write(dir, huggingface.Export{
		Config: c, DType: dtype, Files: tokenizer.Bytes{}.Files(),
		Layer: func(layer int, dst []float32) error { c.InitLayer(layer, 5, dst); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// sameFile compares two files to the bit.
func sameFile(t *testing.T, a, b string) {
	t.Helper()
	one, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	two, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, two) {
		t.Errorf("%s and %s differ", a, b)
	}
}

// TestTrainingForNothingKeepsEveryByte: weights go in, through a run whose learning rate is
// zero, and out again.
func TestTrainingForNothingKeepsEveryByte(t *testing.T) {
	t.Parallel()
	gpt2 := model.Config{Vocab: 256, Context: 32, Blocks: 2, Heads: 2, Channels: 32}
	llama := gpt2
	llama.Norm, llama.Activation, llama.Positions, llama.KVHeads = model.RMSNorm, model.SwiGLU, model.RoPE, 1
	llama.NoQKVBias, llama.NoOutputBias, llama.NoMLPBias, llama.UntiedHead = true, true, true, true
	for _, tt := range []struct {
		name   string
		config model.Config
		dtype  safetensors.DType
		args   []string
	}{
		{"gpt2 f32", gpt2, safetensors.F32, nil},
		{"llama bf16, imported, two nodes", llama, safetensors.BF16, []string{"--local", "2", "--replicas", "1", "--stages", "2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			source, run, out, data := family(t, tt.config, tt.dtype), t.TempDir(), filepath.Join(t.TempDir(), "out"), textFile(t)
			from := source
			if tt.args != nil {
				from = filepath.Join(t.TempDir(), "imported")
				start(t, "import", source, "--dir", from).finish(0)
			}
			p := start(t, append([]string{
				"train", "--init", from, "--data", data, "--dir", run, "--steps", "2", "--checkpoint-every", "1", "--lr", "1e-300", "--weight-decay", "0",
				"--micros", "2", "--micro-batch", "1", "--warmup-steps", "0", "--held-out-every", "1",
			}, tt.args...)...)
			p.finish(0)
			if code, _, stderr := pnode(t, "export", out, "--dir", run, "--dtype", strings.ToLower(string(tt.dtype))); code != exitOK {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			for _, name := range []string{"model.safetensors", "config.json", "tokenizer.json"} {
				sameFile(t, filepath.Join(source, name), filepath.Join(out, name))
			}
		})
	}
}

// TestGivenWeightsBringTheirTokens: text goes through the tokenizer of the weights; shards of
// another are refused.
func TestGivenWeightsBringTheirTokens(t *testing.T) {
	t.Parallel()
	const words = "../../node/dataset/tokenizer/testdata/gpt2.json"
	data, shards, first, second := textFile(t), filepath.Join(t.TempDir(), "shards"), t.TempDir(), t.TempDir()
	start(t, "tokenize", "--tokenizer", words, "--out", shards, data).finish(0)
	settings := []string{"--steps", "2", "--micros", "1", "--micro-batch", "1", "--context", "16", "--json"}
	start(t, append([]string{"train", "--data", shards, "--dir", first}, settings...)...).finish(0)
	generatedBy(t, first)
	out := filepath.Join(t.TempDir(), "out")
	if code, _, stderr := pnode(t, "export", out, "--dir", first); code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if run, model := figures(t, first, data), figures(t, out, data); run != model {
		t.Errorf("the run has %s, its export %s", run, model)
	}
	p := start(t, "train", "--init", out, "--data", data, "--dir", second, "--steps", "1", "--micros", "1", "--micro-batch", "1")
	p.finish(0)
	if said := p.stderr.String(); !strings.Contains(said, "turning the text into the model's tokens") {
		t.Error(said)
	}
	generatedBy(t, second)
	for _, tt := range []struct{ args, want string }{
		{"--init " + family(t, model.Config{Vocab: 256, Context: 16, Blocks: 1, Heads: 1, Channels: 8}, safetensors.F32) + " --data " + shards, "made with another tokenizer"},
		{"--init " + out, "has a tokenizer of its own: name text or token shards with --data"},
		{"--init " + out + " --context 17 --data " + shards, "context is 17"},
		{"--init " + out + " --dir " + out, "the folder is not empty: it holds "},
		{"--init " + t.TempDir(), "holds neither a run nor a model"},
	} {
		if code, _, stderr := pnode(t, append([]string{"train"}, strings.Fields(tt.args)...)...); code == exitOK || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit code %d, want %q:\n%s", tt.args, code, tt.want, stderr)
		}
	}
}

// TestGivenWeightsSurviveAKill: before the first checkpoint a run goes back to what it
// started from.
func TestGivenWeightsSurviveAKill(t *testing.T) {
	t.Parallel()
	source, data := family(t, model.Config{Vocab: 256, Context: 32, Blocks: 2, Heads: 2, Channels: 32}, safetensors.F32), textFile(t)
	train := func(dir string) *process {
		return start(t, "train", "--init", source, "--data", data, "--dir", dir, "--steps", "300", "--checkpoint-every", "1000",
			"--micros", "2", "--micro-batch", "2", "--sample-bytes", "0", "--storage", "f32", "--json")
	}
	want := train(t.TempDir()).finish(0)
	dir := t.TempDir()
	p := train(dir)
	p.until(5)
	kill(t, strconv.Itoa(p.cmd.Process.Pid))
	p.finish(-1)
	same(t, "after a kill", start(t, "train", "--resume", "--dir", dir, "--json").finish(0), want)
}
