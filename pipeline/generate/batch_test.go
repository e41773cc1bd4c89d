package generate

import (
	"errors"
	"slices"
	"testing"

	"pnode/kernels/cpu"
	"pnode/pipeline/model"
)

// TestBatchGivesEachTextAsAlone continues more prompts than there are sequences, equal ones and of unlike lengths, some beyond what the model
// sees, and ends one early.
func TestBatchGivesEachTextAsAlone(t *testing.T) {
	gpt2 := model.Config{Vocab: 61, Context: 16, Blocks: 2, Heads: 4, Channels: 32}
	sliding := small
	sliding.Window = 3
	for name, c := range map[string]model.Config{"gpt2": gpt2, "llama": small, "window": sliding} {
		for _, storage := range []model.Storage{model.StorageF32, model.StorageBF16} {
			t.Run(name+" "+storage.String(), func(t *testing.T) {
				generator := func(sequences int) *Generator {
					device, err := cpu.New(cpu.Options{Threads: 2})
					if err != nil {
						t.Fatal(err)
					}
					return newGeneratorOf(t, Config{Device: device, Model: c, Params: initial(c), Positions: 12, Sequences: sequences, Storage: storage})
				}
				short := func() Request {
					left := 3
					return Request{Prompt: []int32{7, 7}, Tokens: 9, Each: func(int32) bool { left--; return left > 0 }}
				}
				var requests []Request
				for i, prompt := range [][]int32{{3, 14, 15, 9, 2, 6}, {1}, {3, 14, 15, 9, 2, 6}, {5, 8}, {3, 14, 15, 9, 2, 6}, make([]int32, 14), {3, 14}, {1}} {
					requests = append(requests, Request{Prompt: prompt, Tokens: 5 + 3*i, Sampling: Sampling{Temperature: 1, Seed: uint64(i)}})
				}
				requests = append(requests, short(), Request{Prompt: []int32{1}})
				var want [][]int32
				for _, r := range requests {
					if r.Each != nil { // counts
						r = short()
					}
					alone, err := generator(1).Generate(t.Context(), r)
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, alone)
				}
				if len(want[8]) != 3 || len(want[9]) != 0 {
					t.Fatalf("alone %v", want)
				}
				for _, sequences := range []int{1, 3, 10} {
					requests[8] = short()
					got, err := generator(sequences).Batch(t.Context(), requests)
					if err != nil || !slices.EqualFunc(got, want, slices.Equal) {
						t.Errorf("%d at a time: %v, want %v (%v)", sequences, got, want, err)
					}
				}
			})
		}
	}
}

func TestBatchRefuses(t *testing.T) {
	g := newGenerator(t, small, 0)
	good := Request{Prompt: []int32{1}, Tokens: 1}
	if _, err := g.Batch(t.Context(), []Request{good, {Prompt: []int32{61}, Tokens: 1}}); !errors.Is(err, ErrBadRequest) {
		t.Errorf("a token that the model lacks: %v", err)
	}
	if _, err := g.Batch(t.Context(), []Request{good, {Prompt: []int32{1}, Sampling: Sampling{Temperature: -1}}}); !errors.Is(err, ErrBadSampling) {
		t.Errorf("a temperature below 0: %v", err)
	}
}
