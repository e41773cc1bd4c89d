package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pnode/checkpoint/hub/hubtest"
)

// TestPullAndTrain downloads a small model from a hub of this machine, and trains, continues, scores and exports it by its name.
func TestPullAndTrain(t *testing.T) {
	usualUmask(t)
	text := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("Some words to train on.\n", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	first, model := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "model")
	train := []string{"train", "--data", text, "--steps", "1", "--sample-bytes", "0", "--threads", "1"}
	for _, args := range [][]string{append(train, "--preset", "nano", "--dir", first), {"export", model, "--dir", first}} {
		if code, _, stderr := pnode(t, args...); code != exitOK {
			t.Fatalf("%q: exit code %d\n%s", args, code, stderr)
		}
	}
	files := map[string][]byte{"pytorch_model.bin": []byte("a program")}
	entries, err := os.ReadDir(model)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(model, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	h := hubtest.New(t, files)
	cache := t.TempDir()
	t.Setenv("HF_ENDPOINT", h.URL)
	t.Setenv("HF_TOKEN", "")
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)         // on macOS
	t.Setenv("LocalAppData", cache) // on Windows
	cluster := filepath.Join(root, "docs", "examples", "cluster.yaml")
	for says, args := range map[string][]string{
		"hf:org/name is not on this machine yet: pnode pull hf:org/name":   {"plan", "--init", "hf:org/name"},
		"hf:org/other is not on this machine yet: pnode pull hf:org/other": {"simulate", "--cluster", cluster, "--init", "hf:org/other"},
		"want hf:ORG/NAME": {"pull", "org/name"},
		"If it is a model of Hugging Face: pnode pull hf:org/name": {"import", "org/name", "--dir", filepath.Join(cache, "out")},
		"org/other is not found on the hub":                        {"pull", "hf:org/other"},
		"org/adapter is not found on the hub":                      {"generate", "--dir", model, "--lora", "hf:org/adapter", "--prompt", "S"},
		"org/adapter2 is not found on the hub":                     {"train", "--data", text, "--init", model, "--lora", "hf:org/adapter2"},
		"hf:org/adapter3 is not on this machine yet":               {"plan", "--init", model, "--lora", "hf:org/adapter3"},
	} {
		if code, _, stderr := pnode(t, args...); code != exitUsage || !strings.Contains(stderr, says) {
			t.Errorf("%q: exit code %d, %s; want %q", args, code, stderr, says)
		}
	}
	dir := filepath.Join(t.TempDir(), "model")
	code, stdout, stderr := pnode(t, "pull", "hf:org/name", "--dir", dir)
	if code != exitOK || !strings.Contains(stdout, "commit "+hubtest.Commit) || !strings.Contains(stdout, "pnode train --init ") || !strings.Contains(stderr, "MB/s") {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "pytorch_model.bin")); err == nil {
		t.Error("the pickle came, too")
	}
	for _, path := range []string{dir, filepath.Join(dir, "config.json"), filepath.Join(dir, "model.safetensors")} {
		if st, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v; want nothing for others", path, st, err)
		}
	}
	h.Cuts, h.CutBytes = 1, 10_000 // the connection ends once, and the download goes on
	run := filepath.Join(t.TempDir(), "run")
	code, _, stderr = pnode(t, append(train, "--init", "hf:org/name", "--dir", run)...)
	if code != exitOK || !strings.Contains(stderr, "starting from the model in "+cache) {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	short, out := "hf:org/name@"+hubtest.Commit[:7], filepath.Join(t.TempDir(), "out")
	for _, args := range [][]string{
		{"generate", "--dir", short, "--prompt", "Some", "--tokens", "1", "--threads", "1"}, {"eval", "--dir", short, "--threads", "1", text}, {"export", out, "--dir", short},
	} {
		if err := os.RemoveAll(filepath.Join(cache, "pnode")); err != nil { // so that each downloads it
			t.Fatal(err)
		}
		if code, stdout, stderr = pnode(t, args...); code != exitOK || !strings.Contains(stdout+stderr, hubtest.Commit) {
			t.Errorf("%q: exit code %d\n%s%s", args, code, stdout, stderr)
		}
	}
	if st, err := os.Stat(out); err != nil || runtime.GOOS != "windows" && st.Mode().Perm()&0o055 != 0o055 {
		t.Errorf("the export is %v, %v; want others to read it, as the umask says", st, err)
	}
	h.Requests()
	for _, args := range [][]string{{"plan"}, {"simulate", "--cluster", cluster, "--span", "1h", "--policy", "pnode"}} {
		if code, stdout, stderr = pnode(t, append(args, "--init", "hf:org/name")...); code != exitOK || len(h.Requests()) > 0 {
			t.Errorf("%s with what is here: exit code %d\n%s%s", args[0], code, stdout, stderr)
		}
	}
}
