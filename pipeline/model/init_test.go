package model

import (
	"math"
	"strings"
	"testing"
)

var initConfig = Config{Vocab: 256, Context: 128, Blocks: 4, Heads: 4, Channels: 128}

func initLayer(c Config, layer int, seed uint64) []float32 {
	dst := make([]float32, c.LayerLen(layer))
	for i := range dst {
		dst[i] = float32(math.NaN()) // must all be overwritten
	}
	c.InitLayer(layer, seed, dst)
	return dst
}

// TestInitBits holds InitLayer to bits that a separate program (integers of any size,
// IEEE double precision) computed from its documentation.
func TestInitBits(t *testing.T) {
	tests := []struct {
		seed                   uint64
		layer, tensor, element int
		bits                   uint32
	}{
		{1, 0, 0, 0, 0x3cdbff5c},
		{1, 0, 0, 9471, 0x3c4af70a},
		{1, 0, 1, 17, 0xbbd8dc29},
		{7, 1, 2, 5, 0xbc91d148},
		{7, 1, 4, 5, 0xbb3afe90},
		{math.MaxUint64, 4, 10, 65535, 0x3b825aea},
	}
	for _, test := range tests {
		tensor := initConfig.LayerTensors(test.layer)[test.tensor]
		got := initLayer(initConfig, test.layer, test.seed)[tensor.Off+test.element]
		if math.Float32bits(got) != test.bits {
			t.Errorf("seed %d layer %d %s[%d] is %#x, want %#x", test.seed, test.layer, tensor.Name, test.element, math.Float32bits(got), test.bits)
		}
	}
}

// TestInitDistribution checks each tensor's mean, deviation and tails.
func TestInitDistribution(t *testing.T) {
	for layer := range initConfig.Layers() {
		values := initLayer(initConfig, layer, 3)
		for _, tensor := range initConfig.LayerTensors(layer) {
			part := values[tensor.Off : tensor.Off+tensor.Len()]
			mean, std := sum64(part)/float64(len(part)), 0.0
			outside := 0 // beyond one deviation
			want := 0.02
			if strings.Contains(tensor.Name, "c_proj") {
				want = 0.02 / math.Sqrt(2*4)
			}
			for _, v := range part {
				d := float64(v) - mean
				std += d * d
				if math.Abs(d) > want {
					outside++
				}
			}
			std = math.Sqrt(std / float64(len(part)))
			switch {
			case tensor.Decay:
				n := math.Sqrt(float64(len(part)))
				near(t, tensor.Name+" mean", mean, 0, 4*want/n)
				near(t, tensor.Name+" deviation", std, want, 4*want/n)
				near(t, tensor.Name+" share beyond one deviation", float64(outside)/float64(len(part)), 0.3173, 0.005+2/n)
			case strings.Contains(tensor.Name, "ln_") && strings.HasSuffix(tensor.Name, "weight"):
				near(t, tensor.Name, mean+std, 1, 0)
			default:
				near(t, tensor.Name, math.Abs(mean)+std, 0, 0)
			}
		}
	}
}

func TestInitTiesAndSeparates(t *testing.T) {
	embed, head := initLayer(initConfig, 0, 5), initLayer(initConfig, initConfig.Layers()-1, 5)
	n := initConfig.TiedLen()
	sameBits(t, "tied copy", head[len(head)-n:], embed[:n])
	streams := map[[4]float32]string{}
	for name, s := range map[string][]float32{
		"wte":               embed,
		"wpe":               embed[n:],
		"wte of other seed": initLayer(initConfig, 0, 6),
		"block 1 attention": initLayer(initConfig, 1, 5)[2*initConfig.Channels:],
		"block 2 attention": initLayer(initConfig, 2, 5)[2*initConfig.Channels:],
		"wte from 1 on":     embed[1:],
	} {
		start := [4]float32(s)
		if other, ok := streams[start]; ok {
			t.Errorf("%s and %s start alike", name, other)
		}
		streams[start] = name
	}
}

// TestInitRange makes a layer in pieces that cut its tensors anywhere.
func TestInitRange(t *testing.T) {
	small := adapted(tinyLlama, LoRA{Rank: 3, Alpha: 1, Targets: "k_proj"})
	for layer := range small.Layers() {
		whole, pieces := initLayer(small, layer, 9), make([]float32, small.LayerLen(layer))
		for first := 0; first < len(pieces); first += 101 {
			small.InitRange(layer, 9, first, pieces[first:min(first+101, len(pieces))])
		}
		sameBits(t, "layer in pieces", pieces, whole)
	}
}
