package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"pnode/checkpoint/huggingface"
	"pnode/checkpoint/safetensors"
	"pnode/pipeline/model"
)

// smallLlama is a model of bytes.
var smallLlama = model.Config{
	Vocab: 256, Context: 32, Blocks: 2, Heads: 2, KVHeads: 1, Channels: 32, Norm: model.RMSNorm, Activation: model.SwiGLU, Positions: model.RoPE,
	NoQKVBias: true, NoOutputBias: true, NoMLPBias: true, UntiedHead: true,
}

// tune trains adapters of the weights in a folder.
func tune(t *testing.T, weights, data string, args ...string) (run string, losses map[int]json.Number) {
	t.Helper()
	run = t.TempDir()
	p := start(t, append([]string{
		"train", "--init", weights, "--data", data, "--dir", run, "--json", "--steps", "4", "--checkpoint-every", "2", "--lr", "0.05", "--warmup-steps", "0",
		"--micros", "2", "--micro-batch", "1", "--held-out-every", "2", "--storage", "f32",
	}, args...)...)
	return run, p.finish(0)
}

// layerOf reads a layer of a folder in Hugging Face's layout.
func layerOf(t *testing.T, dir string, layer int) []float32 {
	t.Helper()
	m, err := huggingface.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	params := make([]float32, m.Config().LayerLen(layer))
	if err := m.Layer(layer, params); err != nil {
		t.Fatal(err)
	}
	return params
}

// TestAdaptersTrainAndMerge: the losses do not depend on the cut, and an export differs from
// the weights that went in in the adapted matrices alone.
func TestAdaptersTrainAndMerge(t *testing.T) {
	t.Parallel()
	weights, data, out := family(t, smallLlama, safetensors.F32), textFile(t), filepath.Join(t.TempDir(), "out")
	adapters := []string{"--lora-rank", "2", "--lora-alpha", "6", "--lora-targets", "q_proj,down_proj"}
	run, want := tune(t, weights, data, adapters...)
	_, cut := tune(t, weights, data, append(adapters, "--local", "2", "--replicas", "1", "--stages", "2", "--recompute", "block")...)
	same(t, "two nodes", cut, want)
	if code, _, stderr := pnode(t, "export", out, "--dir", run); code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if a, b := figures(t, run, data), figures(t, out, data); a != b || a == figures(t, weights, data) {
		t.Errorf("the run has %s, its export %s, the weights before it %s", a, b, figures(t, weights, data))
	}
	adapted := map[string]bool{}
	for layer := range smallLlama.Layers() {
		before, after := layerOf(t, weights, layer), layerOf(t, out, layer)
		for _, tensor := range smallLlama.LayerTensors(layer) {
			for i := tensor.Off; i < tensor.Off+tensor.Len(); i++ {
				adapted[tensor.Name] = adapted[tensor.Name] || before[i] != after[i]
			}
		}
	}
	for name, changed := range adapted {
		matched, err := filepath.Match("layers.[01].*.[qd]*_proj.weight", name)
		if err != nil || matched != changed {
			t.Errorf("%s: changed %v", name, changed)
		}
	}
}

// succeed runs a command that must.
func succeed(t *testing.T, args ...string) {
	t.Helper()
	if code, _, stderr := pnode(t, args...); code != exitOK {
		t.Fatalf("%v: exit code %d: %s", args, code, stderr)
	}
}

const (
	modelFile   = "model.safetensors"
	adapterFile = "adapter_model.safetensors"
)

// TestAdaptersGoOutAndIn: beside the weights that the run started from, its exported adapters
// are the model that it trained, to the bit: for those who generate and score, worked into an
// export, and as what another run starts from.
func TestAdaptersGoOutAndIn(t *testing.T) {
	t.Parallel()
	weights, data, dir := family(t, smallLlama, safetensors.F32), textFile(t), t.TempDir()
	run, _ := tune(t, weights, data, "--lora-rank", "2", "--lora-alpha", "6", "--lora-targets", "q_proj,mlp.down_proj,lm_head")
	whole, alone, merged := filepath.Join(dir, "whole"), filepath.Join(dir, "alone"), filepath.Join(dir, "merged")
	succeed(t, "export", whole, "--dir", run)
	succeed(t, "export", alone, "--dir", run, "--adapter", "--base", "the/base")
	succeed(t, "export", merged, "--dir", weights, "--lora", alone)
	sameFile(t, filepath.Join(merged, modelFile), filepath.Join(whole, modelFile))
	if a, b := figures(t, run, data), figures(t, weights, data, "--lora", alone); a != b {
		t.Errorf("the run has %s, its adapters beside the weights %s", a, b)
	}
	if a, b := generatedBy(t, run), generatedBy(t, weights, "--lora", alone); a != b {
		t.Errorf("the run says %q, its adapters beside the weights %q", a, b)
	}
	still, again := tune(t, weights, data, "--lora", alone, "--lr", "1e-300", "--min-lr", "0")
	if again[1] == "" {
		t.Error("no step was trained")
	}
	copied, kept := filepath.Join(dir, "copied"), filepath.Join(dir, "kept")
	succeed(t, "export", copied, "--dir", still)
	sameFile(t, filepath.Join(copied, modelFile), filepath.Join(whole, modelFile))
	succeed(t, "export", kept, "--dir", still, "--adapter")
	sameFile(t, filepath.Join(kept, adapterFile), filepath.Join(alone, adapterFile))
	moved, _ := tune(t, weights, data, "--lora", alone, "--lr", "0.05")
	if figures(t, moved, data) == figures(t, run, data) {
		t.Error("the adapters did not train on")
	}
}

func TestAdaptersAreRefused(t *testing.T) {
	t.Parallel()
	weights, data := family(t, smallLlama, safetensors.F32), textFile(t)
	run, _ := tune(t, weights, data, "--lora-rank", "2")
	alone := filepath.Join(t.TempDir(), "alone")
	succeed(t, "export", alone, "--dir", run, "--adapter")
	wider := smallLlama
	wider.Channels *= 2
	other := family(t, wider, safetensors.F32)
	for args, want := range map[string]string{
		"export NEW --dir " + weights + " --adapter":                              "no adapter in the model in",
		"export NEW --dir " + run + " --base x":                                   "--base is x: want none without --adapter",
		"export NEW --dir " + run + " --adapter --dtype f32":                      "leave --dtype and --shard-size out with --adapter",
		"export NEW --dir " + run + " --adapter --shard-size 5MB":                 "leave --dtype and --shard-size out with --adapter",
		"generate --dir " + alone:                                                 "holds adapters alone: name the folder of the model that they change, and this one with --lora",
		"generate --dir " + weights + " --lora " + weights:                        "adapter_config.json",
		"eval --dir " + other + " --lora " + alone + " " + data:                   "q_proj.lora_A.weight\" is [2 32], the configuration asks for [2 64]",
		"train --lora " + alone:                                                   "--lora is " + alone + ": needs --init FOLDER: adapters change the weights of a model that is there",
		"train --init " + weights + " --lora " + alone + " --lora-rank 3":         "--lora-rank is 3: want 0: the adapters in " + alone,
		"train --init " + weights + " --lora " + alone + " --lora-alpha 3":        "--lora-alpha is 3: want 0: the adapters in " + alone,
		"train --init " + weights + " --lora " + alone + " --lora-targets k_proj": "--lora-targets is k_proj: want none: the adapters in " + alone,
		"train --init " + other + " --lora " + alone + " --data " + data:          "asks for [2 64]",
		"train --init " + alone + " --data " + data:                               "holds adapters alone",
	} {
		args = strings.Replace(args, "NEW", filepath.Join(t.TempDir(), "new"), 1)
		code, _, stderr := pnode(t, strings.Fields(args)...)
		if code == exitOK || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, want %q:\n%s", args, code, want, stderr)
		}
	}
}
