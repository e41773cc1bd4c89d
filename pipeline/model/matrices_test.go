package model

import "testing"

// TestMatrices: those of a block have each of its trained matrices once, query, key and value apart, and nothing else.
func TestMatrices(t *testing.T) {
	gpt2 := Config{Vocab: 64, Context: 16, Blocks: 2, Heads: 2, Channels: 32}
	grouped, err := Preset("llama-160m")
	if err != nil {
		t.Fatal(err)
	}
	adapted := gpt2
	adapted.LoRA = LoRA{Rank: 4, Alpha: 8, Targets: "c_attn"}
	for name, c := range map[string]struct {
		config Config
		count  int
	}{"fused query, key and value": {gpt2, 6}, "apart": {grouped, 7}, "adapters alone": {adapted, 2}} {
		for l := range c.config.Layers() {
			all := c.config.Matrices(l)
			if l == 0 || l == c.config.Layers()-1 {
				if len(all) > 0 {
					t.Errorf("%s: layer %d has %v", name, l, all)
				}
				continue
			}
			var covered, trained int
			for i, m := range all {
				if covered += m.Len(); i > 0 && m.Off < all[i-1].Off+all[i-1].Len() {
					t.Errorf("%s: %v overlaps %v", name, m, all[i-1])
				}
			}
			for _, x := range c.config.LayerTensors(l) {
				if len(x.Shape) == 2 && !x.Frozen {
					trained += x.Len()
				}
			}
			if len(all) != c.count || covered != trained {
				t.Errorf("%s: layer %d has %d matrices of %d elements, want %d of %d", name, l, len(all), covered, c.count, trained)
			}
		}
	}
}
