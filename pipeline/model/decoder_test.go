package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/null"
)

// newTestDecoder has the closed-form weights.
func newTestDecoder(t *testing.T, cfg DecoderConfig) (*Decoder, kernels.Queue) {
	t.Helper()
	device, err := cpu.New(cpu.Options{Threads: 2})
	must(t, err)
	cfg.Device = device
	d, err := NewDecoder(cfg)
	must(t, err)
	q, err := device.NewQueue()
	must(t, err)
	t.Cleanup(func() {
		must(t, q.Close())
		d.Close()
		must(t, device.Close())
	})
	for l := range cfg.Model.Layers() {
		must(t, d.Fill(q, l, func(dst []float32) error {
			copy(dst, referenceParams(cfg.Model, l))
			return nil
		}))
	}
	return d, q
}

func feed(t *testing.T, d *Decoder, q kernels.Queue, tokens []int32) []float32 {
	t.Helper()
	logits := make([]float32, d.cfg.Model.Vocab)
	q.Read(kernels.Float32Bytes(logits), d.Feed(q, 0, tokens))
	must(t, q.Sync())
	return logits
}

// TestDecoderEqualsForward feeds a prompt and then token by token, and compares with the
// logits of a forward pass over the whole sequence.
func TestDecoderEqualsForward(t *testing.T) {
	eachFamily(t, func(t *testing.T, ref reference) {
		if ref.Config.LoRA.On() {
			t.Skip("a decoder has no adapters")
		}
		r := newRig(t, rigConfig{model: ref.Config, batch: 1}).load()
		tokens, _ := referenceMicro(ref.Config, 1, 0)
		r.forward(0, 0)
		want := r.logits(0)
		for _, rows := range []int{0, 2, 5} {
			for _, prompt := range []int{1, 7, len(tokens)} {
				t.Run(fmt.Sprintf("rows %d prompt %d", rows, prompt), func(t *testing.T) {
					d, q := newTestDecoder(t, DecoderConfig{Model: ref.Config, Rows: rows})
					for n := prompt; n <= len(tokens); n++ {
						got := feed(t, d, q, tokens[d.lengths[0]:n])
						for i, w := range want[(n-1)*ref.Config.Vocab : n*ref.Config.Vocab] {
							near(t, fmt.Sprintf("logit %d of position %d", i, n-1), float64(got[i]), float64(w), 1e-5)
						}
					}
				})
			}
		}
	})
}

// TestDecoderWithHalves compares with weights that are stored as float32: what is rounded has 8 or 11 bits, and changes something.
func TestDecoderWithHalves(t *testing.T) {
	eachFamily(t, func(t *testing.T, ref reference) {
		if ref.Config.LoRA.On() {
			t.Skip("a decoder has no adapters")
		}
		tokens, _ := referenceMicro(ref.Config, 1, 0)
		d, q := newTestDecoder(t, DecoderConfig{Model: ref.Config})
		want := feed(t, d, q, tokens)
		largest := float64(max(slices.Max(want), -slices.Min(want)))
		for storage, bits := range map[Storage]int{StorageBF16: 8, StorageF16: 11} {
			for _, prompt := range []int{len(tokens), len(tokens) - 3} {
				d, q := newTestDecoder(t, DecoderConfig{Model: ref.Config, Storage: storage, Rows: 5})
				got := feed(t, d, q, tokens[:prompt])
				for _, token := range tokens[prompt:] {
					got = feed(t, d, q, []int32{token})
				}
				for i, w := range want {
					near(t, fmt.Sprintf("%v logit %d", storage, i), float64(got[i]), float64(w), 4*largest/float64(int(1)<<bits))
				}
				if slices.Equal(got, want) {
					t.Errorf("%v rounds nothing", storage)
				}
			}
		}
	})
}

// TestDecoderGoesBack truncates the sequence and goes on with the same and other tokens.
func TestDecoderGoesBack(t *testing.T) {
	d, q := newTestDecoder(t, DecoderConfig{Model: tinyLlama})
	first := feed(t, d, q, []int32{1, 2, 3, 4})
	second := feed(t, d, q, []int32{5})
	d.Truncate(0, 4)
	other := feed(t, d, q, []int32{6})
	if d.Truncate(0, 4); d.lengths[0] != 4 {
		t.Errorf("the length is %d", d.lengths[0])
	}
	sameBits(t, "logits after going back", feed(t, d, q, []int32{5}), second)
	d.Truncate(0, 0)
	sameBits(t, "logits from the start", feed(t, d, q, []int32{1, 2, 3, 4}), first)
	if second[0] == other[0] {
		t.Error("another token gives the same logits")
	}
}

// TestDecoderBeyondTheContext lets a model with rotary positions go on after the length
// it is trained with, and compares with the same model of a longer context.
func TestDecoderBeyondTheContext(t *testing.T) {
	for _, window := range []int{0, 5} {
		long := tinyLlama
		long.Context, long.Window = 24, window
		r := newRig(t, rigConfig{model: long, batch: 1}).load()
		tokens, _ := referenceMicro(long, 1, 0)
		r.forward(0, 0)
		want := r.logits(0)
		short := long
		short.Context = 12
		d, q := newTestDecoder(t, DecoderConfig{Model: short, Positions: 24, Rows: 10})
		got := feed(t, d, q, tokens)
		for i, w := range want[23*long.Vocab:] {
			near(t, "logit", float64(got[i]), float64(w), 1e-5)
		}
	}
}

func TestDecoderConfig(t *testing.T) {
	for _, test := range []struct {
		cfg  DecoderConfig
		want string
	}{
		{DecoderConfig{Model: Config{}}, "vocab is 0"},
		{DecoderConfig{Model: tiny, Positions: 13}, "positions is 13: take a value from 1 to 12"},
		{DecoderConfig{Model: tiny, Rows: 13}, "rows is 13: take a value from 1 to 12"},
		{DecoderConfig{Model: tinyLlama, Positions: math.MaxInt}, "positions is"},
		{DecoderConfig{Model: tiny, Storage: storages}, "storage is 3"},
		{DecoderConfig{Model: tiny}, "device is nil"},
	} {
		if _, err := NewDecoder(test.cfg); !errors.Is(err, ErrBadConfig) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
	device := &limited{Device: null.New(), lacks: kernels.OpAttentionCached}
	_, err := NewDecoder(DecoderConfig{Model: tiny, Device: device})
	if !errors.Is(err, kernels.ErrUnsupported) || device.live != 0 {
		t.Errorf("error without the operation: %v, %d buffers left", err, device.live)
	}
}

func TestDecoderMemoryIsWhatItAllocates(t *testing.T) {
	for _, preset := range PresetNames() {
		m, err := Preset(preset)
		must(t, err)
		for _, storage := range []Storage{StorageF32, StorageBF16, StorageInt8} {
			device := null.New()
			cfg := DecoderConfig{Model: m, Device: device, Positions: 64, Storage: storage}
			want, weights := int64(0), int64(4)*m.Params()
			switch storage {
			case StorageBF16:
				weights /= 2
			case StorageInt8:
				weights = weights * 17 / 64
			}
			mem := measuredDecoder(cfg).mem
			for _, a := range slices.Concat(mem.lasting(), mem.passing()) {
				want += a.sizeBytes()
			}
			d, err := NewDecoder(cfg)
			must(t, err)
			if got := device.PeakBytes(); got != want || got < weights || storage != StorageF32 && got > 3*weights/2 && m.Params() > 1e8 {
				t.Errorf("%s in %v: %d bytes, predicted %d", preset, storage, got, want)
			}
			d.Close()
		}
	}
}

func TestDecoderMisusePanics(t *testing.T) {
	d, q := newTestDecoder(t, DecoderConfig{Model: tiny})
	for name, misuse := range map[string]func(){
		"no tokens":       func() { d.Feed(q, 0, nil) },
		"too many tokens": func() { d.Feed(q, 0, make([]int32, 13)) },
		"forward":         func() { d.Truncate(0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse()
		})
	}
}
