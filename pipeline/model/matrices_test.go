package model

import "testing"

// TestMatrices: those of a block have each of its trained matrices once, query, key and value apart, and nothing else; what is besides them is the rest.
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
			rest := StateLayout{c.config, true}.Owned(l, 1, Share{})
			if n := c.config.TrainedLen(l) - covered; Total(rest) != n {
				t.Errorf("%s: layer %d has %d elements besides matrices, want %d", name, l, Total(rest), n)
			}
			for _, r := range rest {
				for _, m := range all {
					if off := m.Off - c.config.FrozenLen(l); r.First < off+m.Len() && off < r.End {
						t.Errorf("%s: layer %d: %v is of matrix %v", name, l, r, m)
					}
				}
			}
			if len(all) != c.count || covered != trained {
				t.Errorf("%s: layer %d has %d matrices of %d elements, want %d of %d", name, l, len(all), covered, c.count, trained)
			}
		}
	}
}

// TestSharesHaveWholeMatrices: shares of any count cover a layer once and cut no matrix; their moments lie in the layer's one behind the other;
// and they consist of the pieces that the most shares have.
func TestSharesHaveWholeMatrices(t *testing.T) {
	o := StateLayout{Config{Vocab: 64, Context: 16, Blocks: 2, Heads: 2, Channels: 20}, true}
	const most = 9
	pieces := Pieces(most)
	for layer := range o.Model.Layers() {
		for count := 1; count <= most; count++ {
			var at [2]int
			next, shares, cut := make([]bool, o.Model.TrainedLen(layer)), 0, o.Model.trainedMatrices(layer)
			for i := range count {
				s := Share{i, count}
				for _, r := range o.Share(layer, s) {
					for e := r.First; e < r.End; e++ {
						if next[e] {
							t.Fatalf("layer %d: two of %d shares have element %d", layer, count, e)
						}
						next[e] = true
						shares++
					}
					for _, m := range cut {
						if m.First < r.First && r.First < m.End || m.First < r.End && r.End < m.End {
							t.Errorf("layer %d: share %d of %d, %v, cuts %v", layer, i, count, r, m)
						}
					}
				}
				for k := range at {
					placed, elements := o.Placed(layer, k, s), 0
					for _, r := range placed {
						elements += r.Len()
						if layer > 0 && layer < o.Model.Layers()-1 && r.First < at[k] {
							t.Errorf("layer %d: moment %d of share %d of %d begins at %d, that before ends at %d", layer, k, i, count, r.First, at[k])
						}
					}
					at[k] += elements
				}
				sum := 0
				for p := range pieces {
					if s.Has(p, pieces) {
						sum += Total(o.Share(layer, Share{p, pieces}))
					}
				}
				if want := Total(o.Share(layer, s)); sum != want {
					t.Errorf("layer %d: share %d of %d has %d elements, its pieces %d", layer, i, count, want, sum)
				}
			}
			if shares != len(next) || at != [2]int{o.Len(layer, 0), o.Len(layer, 1)} {
				t.Errorf("layer %d: %d shares have %d of %d elements, moments of %v", layer, count, shares, len(next), at)
			}
		}
	}
}
