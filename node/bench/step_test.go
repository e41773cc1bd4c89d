package bench

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"pnode/kernels"
)

// tiny takes the place of the models that people measure.
func tiny(t *testing.T) StepOptions {
	t.Helper()
	all := stepModels
	t.Cleanup(func() { stepModels = all })
	stepModels = []StepModel{{Name: "tiny", Vocab: 17, Blocks: 2, Heads: 2, Channels: 16, Batch: 32}}
	return StepOptions{Sides: Sides{Rounds: 1, Python: os.Args[0]}, Threads: []int{1}, Sequences: []int{16}, Binary: os.Args[0]}
}

// TestStepsBesidePeers runs this program's side for real; eager steps of the peer take 1000 s, compiled ones 400.
func TestStepsBesidePeers(t *testing.T) {
	o := tiny(t)
	t.Setenv(fakePeer, "compiles")
	r, err := Steps(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Steps) != 2 || len(r.Peers) != 1 || r.Peers[0].Name != "Fake 1.0" || r.Steps[0].Precision != "f32" || r.Steps[1].Precision != "bf16" {
		t.Fatalf("got %+v", r)
	}
	for _, c := range r.Steps {
		if len(c.Sides) != 3 || c.Best == nil || c.Best.Peer != "PyTorch compiled" {
			t.Fatalf("got %+v", c)
		}
		own, eager, compiled := c.Sides[0], c.Sides[1], c.Sides[2]
		if c.Batch != 2 || !(own.TokensPerS > 0 && own.Ratio == 0 && compiled.Ratio > 10 && c.ofLimit(own) > 0 && c.ofLimit(own) < 1) {
			t.Errorf("got %+v", c)
		}
		if math.Abs(eager.Ratio/compiled.Ratio-2.5) > 1e-9 || compiled.PeakBytes != 3<<20 {
			t.Errorf("eager %+v, compiled %+v", eager, compiled)
		}
		sum := 0.0
		for _, class := range []kernels.Class{kernels.ClassMatMul, kernels.ClassAttention, kernels.ClassElementwise, kernels.ClassOptimizer} {
			share := c.Shares[class.String()]
			if !(share > 0 && share < 1) {
				t.Errorf("%v has a share of %v", class, share)
			}
			sum += share
		}
		if sum > 1 || len(c.Shares) != 4 || c.rest() <= 0 || c.rest() >= 1 {
			t.Errorf("shares %v", c.Shares)
		}
	}
	checkText(t, r, "peer Fake 1.0, kernels Slow, with Fakes 2.0", "PyTorch eager", "limit", "100.0%", "tiny, sequence 16, threads 1, bf16: ratio", "to the fastest peer (PyTorch compiled)")
}

// TestAWayThatCannotRun is a row with the reason; the other one is compared.
func TestAWayThatCannotRun(t *testing.T) {
	o := tiny(t)
	o.Precisions = []string{"f32"}
	t.Setenv(fakePeer, "lacks a compiler")
	r, err := Steps(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c := r.Steps[0]
	if len(r.Steps) != 1 || c.Best == nil || c.Best.Peer != "PyTorch eager" || c.Sides[1].TokensPerS <= 0 || c.Sides[2].TokensPerS != 0 {
		t.Fatalf("got %+v", c)
	}
	if want := "Fake 1.0: no working [31m compiler found"; c.Sides[2].Open != want {
		t.Errorf("%q, want %q", c.Sides[2].Open, want)
	}
	checkText(t, r, "PyTorch compiled     - [1]", "[1] Fake 1.0: no working")
}

func TestStepsWithoutAPeer(t *testing.T) {
	o := tiny(t)
	o.Python = "/nonexistent/python3"
	r, err := Steps(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Steps[0]; c.Sides[0].TokensPerS <= 0 || c.Best != nil || c.Sides[1].Open == "" || c.Sides[2].Open != c.Sides[1].Open {
		t.Errorf("got %+v", r)
	}
	checkText(t, r, "python3-torch", "[1] start /nonexistent/python3")
	if strings.Contains(r.Text(), "[2]") {
		t.Errorf("the reason is there twice:\n%s", r.Text())
	}
}

// TestSidesWarmUpAlike: whatever a side is, it makes as many steps as the others before and in the rounds.
func TestSidesWarmUpAlike(t *testing.T) {
	_ = tiny(t)
	const described = `{"device":"cpu","kind":"step","model":{"vocab":11,"context":8,"blocks":1,"heads":2,"channels":16,"batch":2,"threads":1}}`
	var sides []*peer
	for range 2 {
		p, err := startPeer(t.Context(), nil, json.RawMessage(described), os.Args[0], "bench", "--worker")
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		sides = append(sides, p)
	}
	const rounds = 3
	r := trainInTurns(StepModel{Batch: 2, Context: 8}, rounds, sides...)
	if len(r.took) != 2 || r.took[0].err != nil || r.took[1].err != nil {
		t.Fatalf("%+v", r.took)
	}
	// Both train the same: their losses are the same where they have made as many steps.
	for i := range rounds {
		one, two := r.took[0].answers[i], r.took[1].answers[i]
		if one.Loss != two.Loss || len(one.Losses) != len(two.Losses) || len(one.Losses)*16 != int(r.tokens) {
			t.Errorf("round %d: %v after %d steps and %v after %d, of %v tokens", i, one.Loss, len(one.Losses), two.Loss, len(two.Losses), r.tokens)
		}
	}
}

// TestWorkerTrains asks for steps in portions and wants the losses of one training.
func TestWorkerTrains(t *testing.T) {
	const described = `{"device":"cpu","kind":"step","model":{"vocab":11,"context":8,"blocks":1,"heads":2,"channels":16,"batch":2,"threads":1}}`
	losses := func(requests string) []float64 {
		var out bytes.Buffer
		if err := Worker(t.Context(), described, strings.NewReader(requests), &out); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		var all []float64
		for _, line := range lines[1:] { // after the hello
			var a answer
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatal(err)
			}
			all = append(all, a.Loss)
		}
		return all
	}
	one, two := losses("{\"steps\":1}\n{\"steps\":1}\n{\"steps\":1}\n"), losses("{\"steps\":2}\n{\"steps\":1}\n")
	if len(one) != 3 || len(two) != 2 || one[1] != two[0] || one[2] != two[1] {
		t.Errorf("losses %v in single steps, %v in portions", one, two)
	}
	if math.Abs(one[0]-math.Log(11)) > 0.5 {
		t.Errorf("the first loss is %v, want about log(11)", one[0])
	}
}

func TestWorkerRefuses(t *testing.T) {
	const described = `{"device":"cpu","kind":"step","model":{"vocab":11,"context":8,"blocks":1,"heads":2,"channels":16,"batch":2,"threads":1}}`
	for model, request := range map[string]string{"no model": "", `{"device":"cpu","kind":"step"}`: "", described: "no request\n"} {
		var out bytes.Buffer
		if err := Worker(t.Context(), model, strings.NewReader(request), &out); err == nil {
			t.Errorf("model %q, request %q: no error", model, request)
		}
	}
}

func TestBadStepOptions(t *testing.T) {
	for field, o := range map[string]StepOptions{
		"rounds": {Sides: Sides{Rounds: -1}}, "model": {Sides: Sides{Rounds: 1}, Models: []string{"gpt5"}},
		"sequence": {Sides: Sides{Rounds: 1}, Sequences: []int{4096}}, "precision": {Sides: Sides{Rounds: 1}, Precisions: []string{"f8"}}, "threads": {Sides: Sides{Rounds: 1}, Threads: []int{0}},
	} {
		if _, err := Steps(t.Context(), o); err == nil || !strings.Contains(err.Error(), field+" is ") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
