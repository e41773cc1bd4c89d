package bench

import (
	"time"

	"pnode/kernels"
	"pnode/pipeline/model"
)

// deviceSize is how large what is measured on devices is.
type deviceSize struct {
	name   string
	judged bool // whether targets are for these sizes
	// products are M, N, K; batch is how long a batch of calls takes at least, round how long a
	// side repeats batches in a round.
	products     [][3]int
	attention    []kernels.AttentionShape
	batch, round time.Duration
	// step is beside PyTorch, large is not; their Batch is the largest that is tried.
	step, large StepModel
	copies      copiesCase
	repeats     []repeatCase
}

// copiesCase is a pipeline of two stages.
type copiesCase struct {
	StepModel
	Micros int `json:"micros"`
}

// repeatCase is a training that is repeated, and compared with one on the processor if wanted.
type repeatCase struct {
	StepModel
	storage model.Storage
	steps   int
	// tolerance is by which part of the processor's the losses may differ; 0: not compared.
	tolerance float64
}

// Models of presets.
var (
	nano     = StepModel{Name: "nano", Vocab: 256, Context: 128, Blocks: 4, Heads: 6, Channels: 192, Batch: 8}
	small10M = StepModel{Name: "small-10m", Vocab: 256, Context: 256, Blocks: 6, Heads: 6, Channels: 384, Batch: 1}
	gpt124M  = StepModel{Name: "gpt2-124m", Vocab: 50257, Context: 1024, Blocks: 12, Heads: 12, Channels: 768, Batch: 32}
	gpt1300M = StepModel{Name: "gpt3-1.3b", Vocab: 50257, Context: 2048, Blocks: 24, Heads: 16, Channels: 2048, Batch: 8}
)

// of is the model with another context and batch.
func (m StepModel) of(context, batch int) StepModel {
	m.Context, m.Batch = context, batch
	return m
}

// Losses of float32 differ by the order of sums, those of bf16 by 1/256 of what is stored, now and
// then: see model/parity for smaller models.
const f32Tolerance, bf16Tolerance = 1e-4, 5e-3

// deviceSizes are those that DeviceOptions.Size can name. Attention has 16,384 tokens and 2,048
// channels, as in Dao 2023, "FlashAttention-2", section 4.1.
var deviceSizes = []deviceSize{
	{
		name: "full", judged: true, products: [][3]int{{4096, 4096, 4096}, {8192, 8192, 8192}},
		attention: []kernels.AttentionShape{
			{B: 16, T: 1024, H: 32, K: 32, D: 64},
			{B: 16, T: 1024, H: 16, K: 16, D: 128},
			{B: 4, T: 4096, H: 32, K: 32, D: 64},
			{B: 4, T: 4096, H: 16, K: 16, D: 128},
		},
		batch: 50 * time.Millisecond, round: 250 * time.Millisecond,
		step: gpt124M, large: gpt1300M, copies: copiesCase{gpt124M.of(1024, 4), 16},
		repeats: []repeatCase{
			{nano, model.StorageF32, 20, f32Tolerance},
			{nano, model.StorageBF16, 20, bf16Tolerance},
			{gpt124M.of(1024, 4), model.StorageBF16, 5, 0},
		},
	},
	{
		name: "small", products: [][3]int{{256, 256, 256}, {512, 256, 384}},
		attention: []kernels.AttentionShape{{B: 1, T: 64, H: 2, K: 2, D: 64}, {B: 1, T: 128, H: 1, K: 1, D: 128}},
		batch:     time.Millisecond, round: 20 * time.Millisecond,
		step: nano.of(32, 4), large: small10M.of(16, 1), copies: copiesCase{nano.of(16, 1), 4},
		repeats: []repeatCase{{nano.of(16, 2), model.StorageF32, 4, f32Tolerance}, {nano.of(16, 2), model.StorageBF16, 4, bf16Tolerance}},
	},
}

// DeviceSizes are the names of sizes, that of the targets first.
func DeviceSizes() (names []string) {
	for _, s := range deviceSizes {
		names = append(names, s.name)
	}
	return names
}

func sizeNamed(name string) deviceSize {
	for _, s := range deviceSizes {
		if s.name == name {
			return s
		}
	}
	panic("bench: a size that fill let pass") // fill refuses others
}
