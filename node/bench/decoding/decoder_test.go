package decoding

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pnode/checkpoint/huggingface"
	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/null"
	"pnode/pipeline/model"
)

var tiny = model.Config{Vocab: 17, Context: 32, Blocks: 2, Heads: 2, Channels: 16}

// open loads a model with large random parameters, so that its opinions differ.
func open(t *testing.T, task Task) *Decoder {
	t.Helper()
	task.Folder = filepath.Join(t.TempDir(), "model")
	if err := huggingface.Write(task.Folder, huggingface.Export{Config: tiny, Layer: func(layer int, dst []float32) error {
		tiny.InitLayer(layer, 1, dst)
		for i := range dst {
			dst[i] *= 8
		}
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	device, err := cpu.New(cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), device, task)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), device.Close()); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestRunGeneratesAnew: a seed has its text, whatever was generated before, and both parts take time.
func TestRunGeneratesAnew(t *testing.T) {
	for _, task := range []Task{{Batch: 1, Prompt: 5, Tokens: 9}, {Batch: 3, Prompt: 5, Tokens: 9, Storage: Precision(model.StorageInt8)}} {
		d, batch := open(t, task), task.Batch
		var texts [][]int32
		for _, seed := range []int{1, 2, 1} {
			r, err := d.Run(t.Context(), seed)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.First) != 9 || r.Prompt <= 0 || r.Rest <= 0 {
				t.Errorf("batch %d, seed %d: %+v", batch, seed, r)
			}
			texts = append(texts, r.First)
		}
		if !slices.Equal(texts[0], texts[2]) || slices.Equal(texts[0], texts[1]) {
			t.Errorf("batch %d: texts %v", batch, texts)
		}
	}
}

// TestPromptsDiffer holds the first tokens of neighbouring seeds apart: what the generator remembers of one is none of the next.
func TestPromptsDiffer(t *testing.T) {
	for seed := range 200 {
		if one, next := prompt(seed, 0, 3, 65), prompt(seed+1, 0, 3, 65); one[0] == next[0] {
			t.Errorf("seeds %d and %d: %v, %v", seed, seed+1, one, next)
		}
	}
}

// TestStepBytes counts by hand: 2 blocks of 16 channels with hidden layers of 64, and a head that is the embedding of 17 tokens.
func TestStepBytes(t *testing.T) {
	const (
		matrices = 2*(48*16+16*16+2*64*16) + 17*16
		vectors  = 2*(2*2*16+48+16+64+16) + 2*16
		keys     = 2 * 2 * 16 // and values of a position in both blocks
	)
	// 32 rows of int8 lie together, with scales of 4 bytes for each 64 in a row or the rest.
	const panel16, panel64 = 32 * (16 + 4), 32 * (64 + 4)
	for storage, bytes := range map[model.Storage]int64{
		model.StorageF32: 4 * matrices, model.StorageBF16: 2 * matrices, model.StorageInt8: 2*(2*panel16+panel16+2*panel16+panel64) + panel16,
	} {
		for _, batch := range []int64{1, 3} {
			task := Task{Storage: Precision(storage), Batch: int(batch), Prompt: 5, Tokens: 4} // steps read 6, 7 and 8 positions
			if got, want := task.StepBytes(tiny), bytes+4*vectors+batch*7*4*keys; got != want {
				t.Errorf("%v, batch %d: %d bytes, want %d", storage, batch, got, want)
			}
		}
	}
}

func TestReadRate(t *testing.T) {
	d := open(t, Task{Batch: 1, Prompt: 2, Tokens: 2})
	bytes, rate, err := d.ReadRate(1)
	if err != nil || bytes != d.task.StepBytes(tiny) || rate <= 0 {
		t.Errorf("%d bytes at %v GB/s: %v", bytes, rate, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	good := Task{Folder: t.TempDir(), Batch: 1, Prompt: 1, Tokens: 2}
	for want, c := range map[string]struct {
		on   kernels.Device
		task Task
	}{
		"is no processor":             {null.New(), good},
		"0 texts of 2 tokens after 1": {device, Task{Batch: 0, Prompt: 1, Tokens: 2}},
		"no model in " + good.Folder:  {device, good},
	} {
		if _, err := Open(t.Context(), c.on, c.task); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestPrecisionsAreReadByName(t *testing.T) {
	for _, p := range Precisions {
		var got Precision
		if text, err := p.MarshalText(); err != nil || got.UnmarshalText(text) != nil || got != p {
			t.Errorf("%v is read as %v: %v", p, got, err)
		}
	}
	var p Precision
	if err := p.UnmarshalText([]byte("f16")); err == nil || !strings.Contains(err.Error(), `"f16": want one of f32, bf16, int8`) {
		t.Errorf("error %v", err)
	}
}
