package bench

import (
	"context"
	"math"
	"strings"
	"testing"
)

// tinyText takes the place of the texts that people measure.
func tinyText(t *testing.T) GenerateOptions {
	t.Helper()
	o := tiny(t)
	return GenerateOptions{Sides: o.Sides, Threads: []int{1}, Prompt: 6, Tokens: 5, Binary: o.Binary}
}

// TestGenerateBesidePeers runs this program's side for real; eager texts of the peer take 1000 s, compiled ones 400.
func TestGenerateBesidePeers(t *testing.T) {
	o := tinyText(t)
	o.Batches = []int{1, 3}
	t.Setenv(fakePeer, "compiles")
	r, err := Generate(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) != 6 || len(r.Peers) != 1 || r.Peers[0].Name != "Fake 1.0" || r.Cases[0].Precision != "f32" || r.Cases[4].Precision != "bf16" || r.Cases[4].Batch != 3 || r.Cases[5].Precision != "int8" {
		t.Fatalf("got %+v", r)
	}
	for _, c := range r.Cases {
		sides, best := 3, "transformers compiled"
		if c.Precision == "int8" {
			sides, best = 5, "transformers compiled, f32"
		}
		if len(c.Sides) != sides || c.Best == nil || c.Best.Peer != best || c.StepBytes <= 0 || c.ReadRate <= 0 || c.limit() <= 0 {
			t.Fatalf("got %+v", c)
		}
		own, eager, compiled := c.Sides[0], c.Sides[1], c.Sides[2]
		if !(own.TokensPerS > 0 && own.PromptPerS > 0 && own.Ratio == 0 && own.Same == o.Tokens && compiled.Ratio > 10 && compiled.Same == 0) {
			t.Errorf("got %+v", c)
		}
		if math.Abs(eager.Ratio/compiled.Ratio-2.5) > 1e-9 || compiled.PeakBytes != 3<<20 {
			t.Errorf("eager %+v, compiled %+v", eager, compiled)
		}
	}
	checkText(t, r, "peer Fake 1.0, kernels Slow, with Fakes 2.0", "transformers eager", "limit, ", "100.0%", "tiny, batch 3, threads 1, bf16: ratio", "to the fastest peer (transformers compiled)")
}

// TestTextsThatCannotBeCompiled are a row with the reason; the other way is compared.
func TestTextsThatCannotBeCompiled(t *testing.T) {
	o := tinyText(t)
	o.Precisions = []string{"f32"}
	t.Setenv(fakePeer, "lacks a compiler")
	r, err := Generate(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c := r.Cases[0]
	if len(r.Cases) != 1 || c.Best == nil || c.Best.Peer != "transformers eager" || c.Sides[1].TokensPerS <= 0 || c.Sides[2].TokensPerS != 0 {
		t.Fatalf("got %+v", c)
	}
	checkText(t, r, "transformers compiled", "- [1]", "[1] Fake 1.0: no working")
}

func TestGenerateWithoutAPeer(t *testing.T) {
	o := tinyText(t)
	o.Python = "/nonexistent/python3"
	r, err := Generate(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Cases[0]; c.Sides[0].TokensPerS <= 0 || c.Best != nil || c.Sides[1].Open == "" || c.Sides[2].Open != c.Sides[1].Open {
		t.Errorf("got %+v", r)
	}
	checkText(t, r, "pip install torch transformers", "[1] start /nonexistent/python3")
}

// TestInterruptKeepsTheRowsSoFar ends the measurement when the second case begins.
func TestInterruptKeepsTheRowsSoFar(t *testing.T) {
	o := tinyText(t)
	o.Python = "/nonexistent/python3"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Progress = func(what string) {
		if strings.HasSuffix(what, "bf16") {
			cancel()
		}
	}
	r, err := Generate(ctx, o)
	if err == nil || len(r.Cases) != 1 || !r.HasRows() {
		t.Errorf("%v, %+v", err, r)
	}
	checkText(t, r, "tiny", "f32")
}

// TestOwnSideThatFails is an error: there is nothing to compare.
func TestOwnSideThatFails(t *testing.T) {
	o := tinyText(t)
	o.Binary = "/nonexistent/pnode"
	if _, err := Generate(t.Context(), o); err == nil || !strings.Contains(err.Error(), "start /nonexistent/pnode") {
		t.Errorf("error %v", err)
	}
}

func TestBadGenerateOptions(t *testing.T) {
	good := GenerateOptions{Sides: Sides{Rounds: 1}, Prompt: 1, Tokens: 2}
	for field, change := range map[string]func(*GenerateOptions){
		"rounds": func(o *GenerateOptions) { o.Rounds = -1 }, "model": func(o *GenerateOptions) { o.Models = []string{"gpt5"} },
		"precision": func(o *GenerateOptions) { o.Precisions = []string{"f8"} }, "threads": func(o *GenerateOptions) { o.Threads = []int{0} },
		"batch": func(o *GenerateOptions) { o.Batches = []int{65} }, "tokens": func(o *GenerateOptions) { o.Tokens = 1 }, "prompt": func(o *GenerateOptions) { o.Prompt = 513 },
	} {
		o := good
		change(&o)
		if _, err := Generate(t.Context(), o); err == nil || !strings.Contains(err.Error(), field+" is ") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
