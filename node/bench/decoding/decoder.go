package decoding

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/node/weights"
	"pnode/pipeline/generate"
	"pnode/pipeline/model"
)

// Task asks for texts of Tokens tokens each after a prompt of Prompt tokens, Batch of them at a time.
type Task struct {
	Folder  string    `json:"folder"` // of the model
	Storage Precision `json:"storage"`
	Batch   int       `json:"batch"`
	Prompt  int       `json:"prompt"`
	Tokens  int       `json:"tokens"`
}

// Decoder is a loaded model on a processor. It belongs to one goroutine.
type Decoder struct {
	task      Task
	model     model.Config
	device    *cpu.Device
	generator *generate.Generator
	memory    kernels.Buffer // as much as a step reads, from the first ReadRate on
}

// Open loads the model. The device has to be a processor: of others nobody knows how fast they can read.
func Open(ctx context.Context, device kernels.Device, t Task) (*Decoder, error) {
	processor, ok := device.(*cpu.Device)
	if !ok {
		return nil, fmt.Errorf("decoding: %s is no processor: take one", device.Name())
	}
	if t.Batch < 1 || t.Prompt < 1 || t.Tokens < 2 {
		return nil, fmt.Errorf("decoding: %d texts of %d tokens after %d: want 1, 2 and 1 at least", t.Batch, t.Tokens, t.Prompt)
	}
	m, err := weights.Open(ctx, t.Folder)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	d := &Decoder{task: t, model: m.Config, device: processor}
	if d.generator, err = generate.New(generate.Config{
		Device: device, Model: m.Config, Storage: model.Storage(t.Storage), Positions: t.Prompt + t.Tokens, Sequences: t.Batch,
		Params: func(layer int, dst []float32) error { return m.Layer(ctx, layer, dst) },
	}); err != nil {
		return nil, err
	}
	return d, nil
}

// takeMemory takes what ReadRate reads, and writes to it: all pages that nobody has written to may be one.
func (d *Decoder) takeMemory() (err error) {
	if d.memory != nil {
		return nil
	}
	if d.memory, err = d.device.Alloc(kernels.F32, int(d.task.StepBytes(d.model)/4)); err != nil {
		return err
	}
	q, err := d.device.NewQueue()
	if err != nil {
		return err
	}
	q.Do(kernels.Fill(kernels.Whole(d.memory), d.memory.Len(), 1))
	return errors.Join(q.Sync(), q.Close())
}

// Close gives the memory back.
func (d *Decoder) Close() error {
	if d.memory != nil {
		d.memory.Free()
	}
	return d.generator.Close()
}

// ReadRate reads as much memory as a step does, again and again for some time, and returns how much that is and the highest rate, in GB/s.
func (d *Decoder) ReadRate(during time.Duration) (bytes int64, rate float64, err error) {
	bytes = d.task.StepBytes(d.model)
	if err := d.takeMemory(); err != nil {
		return bytes, 0, err
	}
	for round := time.Now(); ; {
		begin := time.Now()
		if err := d.device.Read(kernels.Whole(d.memory)); err != nil {
			return bytes, 0, err
		}
		rate = max(rate, float64(bytes)/time.Since(begin).Seconds()/1e9)
		if time.Since(round) >= during {
			return bytes, rate, nil
		}
	}
}

// Result says what a batch of texts took.
type Result struct {
	Prompt time.Duration // until all have their first token
	Rest   time.Duration // for all other tokens
	First  []int32       // the tokens of the first text
}

// Run generates a batch of texts, of the most likely tokens, after the prompts of a seed. Another seed's begin with another token, so that
// nothing of them is in memory yet.
func (d *Decoder) Run(ctx context.Context, seed int) (r Result, err error) {
	begin, firsts := time.Now(), d.task.Batch
	var begun time.Time // the rest
	requests := make([]generate.Request, d.task.Batch)
	for b := range requests {
		first := true
		requests[b] = generate.Request{Prompt: prompt(seed, b, d.task.Prompt, d.model.Vocab), Tokens: d.task.Tokens, Each: func(int32) bool {
			if first {
				first = false
				if firsts--; firsts == 0 {
					begun = time.Now()
				}
			}
			return true
		}}
	}
	texts, err := d.generator.Batch(ctx, requests)
	if err != nil {
		return r, err
	}
	if begun.IsZero() {
		return r, errors.New("decoding: a text has no tokens")
	}
	return Result{Prompt: begun.Sub(begin), Rest: time.Since(begun), First: texts[0]}, nil
}

// prompt returns the tokens of prompt b of a seed, as the peer's script makes them.
func prompt(seed, b, n, vocab int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32((7919*seed + 104729*b + 17*i + 31*i*i) % vocab)
	}
	return tokens
}
