package main

import (
	"encoding/json"
	"math"
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
		"--micros", "2", "--micro-batch", "1", "--held-out-every", "2", "--lora-rank", "2", "--lora-alpha", "6", "--lora-targets", "q_proj,down_proj",
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
	weights, data, out := family(t, smallLlama, safetensors.F32), textFile(t), filepath.Join(t.TempDir(), "out")
	run, want := tune(t, weights, data)
	_, cut := tune(t, weights, data, "--local", "2", "--replicas", "1", "--stages", "2", "--recompute", "block")
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

// TestAdaptersAreExportedAlone: worked into the weights that the run started from they give
// the model that the run's export is.
func TestAdaptersAreExportedAlone(t *testing.T) {
	weights, data := family(t, smallLlama, safetensors.F32), textFile(t)
	run, _ := tune(t, weights, data)
	whole, alone := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "alone")
	for _, args := range [][]string{{"export", whole, "--dir", run}, {"export", alone, "--dir", run, "--adapter", "--base", "the/base"}} {
		if code, _, stderr := pnode(t, args...); code != exitOK {
			t.Fatalf("%v: exit code %d: %s", args, code, stderr)
		}
	}
	adapter, err := huggingface.OpenAdapter(alone, smallLlama)
	if err != nil {
		t.Fatal(err)
	}
	defer adapter.Close()
	if l := adapter.LoRA(); l.Rank != 2 || l.Alpha != 6 || strings.Join(l.Targets, ",") != "down_proj,q_proj" {
		t.Errorf("got %+v", l)
	}
	for layer := range smallLlama.Layers() {
		got, want := layerOf(t, weights, layer), layerOf(t, whole, layer)
		if err := adapter.Merge(layer, got); err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if math.Abs(float64(got[i]-want[i])) > 1e-6 {
				t.Fatalf("layer %d: element %d is %v, the run's export has %v", layer, i, got[i], want[i])
			}
		}
	}
	for args, want := range map[string]string{
		"--dir " + weights + " --adapter":              "no adapter in the model in",
		"--dir " + run + " --base x":                   "base is x: want none without --adapter",
		"--dir " + run + " --adapter --dtype f32":      "leave them out with --adapter",
		"--dir " + run + " --adapter --shard-size 5MB": "leave them out with --adapter",
	} {
		code, _, stderr := pnode(t, append([]string{"export", filepath.Join(t.TempDir(), "x")}, strings.Fields(args)...)...)
		if code == exitOK || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, want %q:\n%s", args, code, want, stderr)
		}
	}
}
