package bench

import (
	"slices"
	"strings"
	"time"

	"pnode/kernels"
	"pnode/pipeline/model"
)

// deviceSize holds the sizes of the rows.
type deviceSize struct {
	name   string
	judged bool // targets of speed are for these sizes
	// products are M, N, K; batch is how long a batch of calls takes at least, round how long a
	// side repeats batches in a round.
	products     [][3]int
	attention    []kernels.AttentionShape
	batch, round time.Duration
	// step is beside PyTorch, large is not; their Batch is the largest that is tried.
	step, large StepModel
	repeats     []repeatCase
}

// repeatCase is a training that is repeated, and compared with one on the processor if wanted.
type repeatCase struct {
	StepModel
	storage model.Storage
	steps   int
	// tolerance is how far losses may be from the processor's, as a part of these; 0: not compared.
	tolerance float64
}

// Models of presets.
var (
	nano     = StepModel{Name: "nano", Vocab: 256, Context: 128, Blocks: 4, Heads: 6, Channels: 192, Batch: 8}
	small10M = StepModel{Name: "small-10m", Vocab: 256, Context: 256, Blocks: 6, Heads: 6, Channels: 384, Batch: 1}
	gpt124M  = StepModel{Name: "gpt2-124m", Vocab: 50257, Context: 1024, Blocks: 12, Heads: 12, Channels: 768, Batch: 32}
	gpt1300M = StepModel{Name: "gpt3-1.3b", Vocab: 50257, Context: 2048, Blocks: 24, Heads: 16, Channels: 2048, Batch: 8}
)

// Losses of float32 differ by the order of sums, those of bf16 by 1/256 of what is stored, now and
// then: see model/parity for smaller models.
const f32Tolerance, bf16Tolerance = 1e-4, 5e-3

// deviceSizes are the values of DeviceOptions.Size. Attention has 16,384 tokens and 2,048
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
		step: gpt124M, large: gpt1300M,
		repeats: []repeatCase{
			{nano, model.StorageF32, 20, f32Tolerance},
			{nano, model.StorageBF16, 20, bf16Tolerance},
			{gpt124M.sized(1024, 4), model.StorageBF16, 5, 0},
		},
	},
	{
		name: "small", products: [][3]int{{256, 256, 256}, {512, 256, 384}},
		attention: []kernels.AttentionShape{{B: 1, T: 64, H: 2, K: 2, D: 64}, {B: 1, T: 128, H: 1, K: 1, D: 128}},
		batch:     time.Millisecond, round: 20 * time.Millisecond,
		step: nano.sized(32, 4), large: small10M.sized(16, 1),
		repeats: []repeatCase{{nano.sized(16, 2), model.StorageF32, 4, f32Tolerance}, {nano.sized(16, 2), model.StorageBF16, 4, bf16Tolerance}},
	},
}

// DeviceSizes returns the names of sizes, that of the targets first.
func DeviceSizes() (names []string) {
	for _, s := range deviceSizes {
		names = append(names, s.name)
	}
	return names
}

// peaks are the dense bf16 rates, with float32 sums, of the makers' data sheets in TFLOP/s, by a part
// of the driver's name of the card; the first that matches counts.
var peaks = []struct {
	model string
	tera  float64
}{
	{"B200", 2250},
	{"H200 NVL", 835},
	{"H200", 989},
	{"GH200", 989},
	{"H100 PCIe", 756},
	{"H100 NVL", 835},
	{"H100", 989},
	{"A100", 312},
	{"A800", 312},
	{"A30", 165},
	{"A10G", 70},
	{"A10", 125},
	{"L40S", 362},
	{"L40", 181},
	{"L4", 121},
	{"RTX 4090", 165},
	{"RTX 3090", 71},
}

// others are words in the names of other cards, or of parts of one.
var others = []string{"Laptop", "MIG", "D", "Ti", "SUPER"}

// knownPeak returns a card's rate in FLOP/s, if it is in the list.
func knownPeak(model string) (flops float64, known bool) {
	if slices.ContainsFunc(strings.Fields(model), func(word string) bool { return slices.Contains(others, word) }) {
		return 0, false
	}
	words := " " + model + " "
	for _, p := range peaks {
		if strings.Contains(words, " "+p.model+" ") || strings.Contains(words, " "+p.model+"-") {
			return p.tera * 1e12, true
		}
	}
	return 0, false
}
