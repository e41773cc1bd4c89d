package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"pnode/node/bench"
)

// BenchmarkLocalNodes trains nano with its default step of 2048 tokens in real processes:
// alone, and as a pipeline of three node processes that share this machine's cores. It
// reports the time of a step and the tokens per second once the run is under way; one
// iteration is enough: -benchtime 1x.
func BenchmarkLocalNodes(b *testing.B) {
	const warm, steps = 10, 50
	for _, nodes := range []int{1, 3} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			for b.Loop() {
				args := []string{
					"train", "--json", "--dir", b.TempDir(), "--data", "../..", "--steps", strconv.Itoa(steps),
					"--held-out-every", "1000", "--checkpoint-every", "1000", "--sample-bytes", "0",
				}
				if nodes > 1 {
					args = append(args, "--local", strconv.Itoa(nodes), "--replicas", "1")
				}
				p := start(b, args...)
				p.until(warm)
				begin := time.Now()
				p.until(steps)
				perStep := time.Since(begin) / (steps - warm)
				p.finish(0)
				b.ReportMetric(float64(perStep.Microseconds())/1000, "ms/step")
				b.ReportMetric(2048/perStep.Seconds(), "tokens/s")
			}
		})
	}
}

// TestBenchGoesOnWhereItStopped measures the losses of a codec with two real nodes, is interrupted in the middle, and is started again.
func TestBenchGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	const steps = 10
	folder := filepath.Join(t.TempDir(), "losses")
	args := []string{
		"bench", "protocol-nanogpt", "--json", "--micro-batch", "16", "--losses", folder, "--codec", "int8", "--seeds", "1",
		"--stages", "2", "--steps", strconv.Itoa(steps), "--data", "../../docs/security.md",
	}
	p := start(t, args...)
	for deadline := time.Now().Add(endToEndTimeout); ; time.Sleep(50 * time.Millisecond) {
		if text, err := os.ReadFile(filepath.Join(folder, "int8-seed1.jsonl")); err == nil && len(text) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no held-out loss within %v:\n%s", endToEndTimeout, p.stderr)
		}
	}
	p.interrupt()
	p.finish(exitFailure)
	p = start(t, args...)
	p.finish(exitOK)
	var r bench.ContestReport
	if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if r.Losses == nil || len(r.Losses.Runs) != 1 {
		t.Fatalf("%+v", r.Losses)
	}
	run := r.Losses.Runs[0]
	if last, ended := run.Last(steps); !ended || len(run.Points) != steps || last.HeldOut == last.Exact || last.Exact < 2 || last.Exact > 6 {
		t.Errorf("%+v", run)
	}
}

// TestLocalStepsAsInPyTorch trains with real nodes and in PyTorch, where a Python with it is named as for package checkpoint/huggingface. Losses are the same but for
// what float32 rounds, also where outer steps round by chance.
func TestLocalStepsAsInPyTorch(t *testing.T) {
	python := os.Getenv("PNODE_TRANSFORMERS_PYTHON")
	if python == "" {
		t.Skip("PNODE_TRANSFORMERS_PYTHON is not set: it is a Python with PyTorch")
	}
	t.Parallel()
	p := start(t, "bench", "local-steps", "--json", "--python", python, "--steps", "8", "--every", "3", "--delay", "1", "--codec", "int8", "--data", "../../docs/security.md")
	p.finish(exitOK)
	var r bench.LocalStepsReport
	if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Codecs) != 1 {
		t.Fatalf("%+v", r)
	}
	if c := r.Codecs[0]; c.InnerSteps != 16 || c.OuterSteps != 3 || c.Last >= c.First || c.Torch.Most > 1e-4 || c.Double.Most > 1e-4 || c.Torch.Most == 0 {
		t.Errorf("%+v", c)
	}
}

// TestGeneratesAsTransformers continues texts here and in transformers, of the same weights: in float32 the likeliest tokens are the same. It needs the same
// Python; one that lacks a compiler says so.
func TestGeneratesAsTransformers(t *testing.T) {
	python := os.Getenv("PNODE_TRANSFORMERS_PYTHON")
	if python == "" {
		t.Skip("PNODE_TRANSFORMERS_PYTHON is not set: it is a Python with PyTorch and transformers")
	}
	t.Parallel()
	const tokens = 6
	p := start(t, "bench", "generate", "--json", "--python", python, "--model", "10m", "--precision", "f32", "--threads", "1", "--batch", "2",
		"--prompt", "7", "--tokens", strconv.Itoa(tokens), "--rounds", "1")
	p.finish(exitOK)
	var r bench.GenerateReport
	if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) != 1 {
		t.Fatalf("%+v", r)
	}
	sides := r.Cases[0].Sides
	if eager := sides[1]; eager.Open != "" || eager.Same != tokens || eager.Ratio <= 0 {
		t.Errorf("%+v", eager)
	}
	if compiled := sides[2]; compiled.Open == "" && compiled.Same != tokens {
		t.Errorf("%+v", compiled)
	}
}
