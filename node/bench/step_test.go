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

// TestStepsBesideAPeer runs this program's side for real; the peer takes 1000 s.
func TestStepsBesideAPeer(t *testing.T) {
	o := tiny(t)
	t.Setenv(fakePeer, "slow")
	r, err := Steps(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Steps) != 1 || r.Peer != "Fake 1.0" {
		t.Fatalf("got %+v", r)
	}
	s := r.Steps[0]
	if s.Batch != 2 || !(s.TokensPerS > 0 && s.Ratio > 10 && s.Utilization > 0 && s.Utilization < 1) {
		t.Errorf("got %+v", s)
	}
	sum := 0.0
	for _, class := range []kernels.Class{kernels.ClassMatMul, kernels.ClassAttention, kernels.ClassElementwise, kernels.ClassOptimizer} {
		share := s.Shares[class.String()]
		if !(share > 0 && share < 1) {
			t.Errorf("%v has a share of %v", class, share)
		}
		sum += share
	}
	if sum > 1 || len(s.Shares) != 4 || s.Rest() <= 0 || s.Rest() >= 1 {
		t.Errorf("shares %v", s.Shares)
	}
	checkText(t, r, "tiny", "Fake 1.0")
}

func TestStepsWithoutAPeer(t *testing.T) {
	o := tiny(t)
	o.Python = "/nonexistent/python3"
	r, err := Steps(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Steps[0].TokensPerS <= 0 || r.Steps[0].Ratio != 0 {
		t.Errorf("got %+v", r)
	}
	checkText(t, r, "python3-torch", "/nonexistent/python3")
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
		"sequence": {Sides: Sides{Rounds: 1}, Sequences: []int{4096}}, "threads": {Sides: Sides{Rounds: 1}, Threads: []int{0}},
	} {
		if _, err := Steps(t.Context(), o); err == nil || !strings.Contains(err.Error(), field+" is ") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
