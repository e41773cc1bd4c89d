package meeting

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/null"
	"pnode/pipeline/compress"
	"pnode/pipeline/model"
	"pnode/pipeline/outer"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

var (
	tiedModel   = model.Config{Vocab: 70, Context: 16, Blocks: 2, Heads: 2, Channels: 20}
	untiedModel = model.Config{Vocab: 50, Context: 16, Blocks: 2, Heads: 2, Channels: 24, NoQKVBias: true, UntiedHead: true}
	loraModel   = model.Config{Vocab: 70, Context: 16, Blocks: 2, Heads: 2, Channels: 20, LoRA: model.LoRA{Rank: 3, Alpha: 6, Targets: "c_attn,mlp.c_proj"}}
)

func newDevice(t testing.TB) kernels.Device {
	t.Helper()
	d, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// replica is one that trains apart, cut into stages.
type replica struct {
	stages []*Meeting
	params [][]float32 // by layer
}

// trial has replicas with random inner steps, and what they are compared with: whole models in plain loops.
type trial struct {
	t        *testing.T
	cfg      Config
	weights  []float32
	replicas []replica
	// The plain loops' vectors, by layer, and by replica and layer.
	reference, momentum [][]float32
	missed              [][][]float32
	spread              Spread // of the round
	rng                 *rand.Rand
}

// newTrial has a replica for each cut: the ends of its stages.
func newTrial(t *testing.T, cfg Config, cuts ...[]int) *trial {
	t.Helper()
	x := &trial{t: t, cfg: cfg, rng: rand.New(rand.NewPCG(1, uint64(cfg.Codec)))}
	x.cfg.Replicas = len(cuts)
	for layer := range cfg.Model.Layers() {
		n := cfg.Model.TrainedLen(layer)
		params := make([]float32, n)
		for i := range params {
			params[i] = float32(x.rng.NormFloat64())
		}
		if layer == cfg.Model.Layers()-1 {
			tied := cfg.Model.TiedGradLen()
			copy(params[n-tied:], x.reference[0][:tied])
		}
		x.reference, x.momentum = append(x.reference, params), append(x.momentum, make([]float32, n))
	}
	for r, ends := range cuts {
		var missed [][]float32
		for _, params := range x.reference {
			missed = append(missed, make([]float32, len(params)))
		}
		x.missed = append(x.missed, missed)
		x.replicas = append(x.replicas, x.newReplica(plan.Replica(r), ends))
	}
	return x
}

// newReplica returns a replica with what the plain loops have at the end of a round.
func (x *trial) newReplica(r plan.Replica, ends []int) (of replica) {
	x.t.Helper()
	for _, params := range x.reference {
		of.params = append(of.params, slices.Clone(params))
	}
	cfg, first := x.cfg, 0
	cfg.Replica = r
	for _, end := range ends {
		cfg.Layers, first = plan.LayerRange{First: first, End: end}, end
		m, err := New(newDevice(x.t), cfg)
		if err != nil {
			x.t.Fatal(err)
		}
		x.t.Cleanup(m.Close)
		for _, layer := range m.Layers() {
			state, err := m.State(layer)
			if err != nil {
				x.t.Fatal(err)
			}
			copy(state.Reference, x.reference[layer])
			copy(state.Momentum, x.momentum[layer])
			copy(state.Missed, x.missed[r][layer])
		}
		of.stages = append(of.stages, m)
	}
	return of
}

// equal reports whether all bits are the same.
func equal(a, b []float32) bool { return bytes.Equal(kernels.Float32Bytes(a), kernels.Float32Bytes(b)) }

// train has each replica make inner steps of its own. Both ends of a tied embedding make the same.
func (x *trial) train() {
	for _, r := range x.replicas {
		for layer, params := range r.params {
			scale := math.Pow(10, float64(x.rng.IntN(4)-4))
			for i := range params {
				params[i] += float32(scale * x.rng.NormFloat64())
			}
			if layer == len(r.params)-1 {
				tied := x.cfg.Model.TiedGradLen()
				copy(params[len(params)-tied:], r.params[0][:tied])
			}
		}
	}
}

// plain makes the outer step of whole models, by the definitions, and returns the messages by replica and layer.
func (x *trial) plain(from plan.Step) (messages [][][]byte) {
	cfg, o := x.cfg.Model, x.cfg.Optimizer
	means := make([][]float32, cfg.Layers())
	for layer := range means {
		means[layer] = make([]float32, len(x.reference[layer]))
	}
	said := make([][]float32, len(x.replicas)) // by replica, all elements of its messages, those of the mean last
	for r, of := range x.replicas {
		messages = append(messages, make([][]byte, cfg.Layers()))
		for layer, reference := range x.reference {
			for i, tensor := range cfg.LayerTensors(layer) {
				if tensor.Frozen || layer == cfg.Layers()-1 && cfg.TiedGradLen() > 0 && tensor.Len() == cfg.TiedGradLen() {
					continue
				}
				d, first := make([]float32, tensor.Len()), tensor.Off-cfg.FrozenLen(layer)
				for j := range d {
					d[j] = reference[first+j] - of.params[layer][first+j]
				}
				place := compress.Place{Step: from, Replica: plan.Replica(r), Layer: layer, Tensor: i}
				b, err := x.cfg.Codec.Append(nil, x.missed[r][layer][first:][:len(d)], d, wire.ReducePart.Bound(), place.Noise(x.cfg.Seed))
				one := make([]float32, len(d))
				if err == nil {
					err = x.cfg.Codec.Add(one, 1, b, wire.RoundedUp(wire.ReducePart.Bound()))
					said[r] = append(said[r], one...)
				}
				if err == nil && x.weights[r] > 0 {
					err = x.cfg.Codec.Add(means[layer][first:][:len(d)], x.weights[r], b, wire.RoundedUp(wire.ReducePart.Bound()))
				}
				if err != nil {
					x.t.Fatal(err)
				}
				messages[r][layer] = append(messages[r][layer], b...)
			}
		}
	}
	last, tied := cfg.Layers()-1, cfg.TiedGradLen()
	x.spread = spreadOf(x.weights, said, slices.Concat(means...)) // the head's copy of a tied embedding is 0 so far
	copy(means[last][len(means[last])-tied:], means[0][:tied])
	for layer, mean := range means {
		for i, d := range mean {
			u := x.momentum[layer][i] + d
			step := d
			if o.Momentum > 0 {
				x.momentum[layer][i] = o.Momentum * u
				step += float32(o.Momentum * u)
			}
			x.reference[layer][i] += float32(-o.LR * step)
		}
	}
	return messages
}

// meet has the replicas meet after a round, and compares every message and number with the plain loops.
func (x *trial) meet(from plan.Step) {
	t := x.t
	t.Helper()
	want := x.plain(from)
	each := func(do func(r int, m *Meeting)) {
		for r, of := range x.replicas {
			for _, m := range of.stages {
				do(r, m)
			}
		}
	}
	each(func(_ int, m *Meeting) { m.Begin(from) })
	offered := map[[2]int][]byte{}
	each(func(r int, m *Meeting) {
		for _, layer := range m.Layers() {
			message, err := m.Offer(layer, x.replicas[r].params[layer])
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(message, want[r][layer]) || len(message) != MessageBytes(x.cfg.Model, x.cfg.Codec, layer) {
				t.Fatalf("replica %d layer %d: another message than of the whole model", r, layer)
			}
			offered[[2]int{r, layer}] = message
		}
	})
	each(func(r int, m *Meeting) {
		for at, message := range offered {
			if at[0] != r && slices.Contains(m.Layers(), at[1]) {
				if err := m.Take(plan.Replica(at[0]), at[1], message); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	var left [][][]float32 // what each replica offered, where it trains meanwhile
	if x.cfg.Late {
		for _, r := range x.replicas {
			var params [][]float32
			for _, p := range r.params {
				params = append(params, slices.Clone(p))
			}
			left = append(left, params)
		}
		x.train()
	}
	for r, of := range x.replicas {
		if x.weights[r] == 0 {
			if _, err := of.stages[0].Merge(of.stages[0].Layers()[0], x.weights, nil, nil); !errors.Is(err, ErrConfig) {
				t.Fatalf("a replica merges that is not counted: %v", err)
			}
			continue
		}
		var spread Spread
		for _, m := range of.stages {
			for _, layer := range m.Layers() {
				var tied []float32
				if layer == x.cfg.Model.Layers()-1 {
					tied = of.stages[0].Tied()
				}
				var now []float32
				merged := slices.Clone(x.reference[layer])
				if x.cfg.Late {
					now = of.params[layer]
					for i := range merged {
						merged[i] += now[i] - left[r][layer][i]
					}
				}
				params, err := m.Merge(layer, x.weights, tied, now)
				if err != nil {
					t.Fatal(err)
				}
				copy(of.params[layer], params)
				state, err := m.State(layer)
				if err != nil {
					t.Fatal(err)
				}
				same := equal(params, merged) && equal(state.Reference, x.reference[layer])
				if state.Momentum != nil {
					same = same && equal(state.Momentum, x.momentum[layer])
				}
				if state.Missed != nil {
					same = same && equal(state.Missed, x.missed[r][layer])
				}
				if !same || (state.Momentum == nil) != (x.cfg.Optimizer.Momentum == 0) || (state.Missed == nil) != (x.cfg.Codec == compress.F32) {
					t.Fatalf("replica %d layer %d after step %d: other numbers than of whole models", r, layer, from)
				}
			}
			spread.Add(m.Spread())
		}
		if !spread.like(x.spread) {
			t.Fatalf("replica %d after step %d: spread %+v, of whole models %+v", r, from, spread, x.spread)
		}
	}
}

// spreadOf returns the spread of outer gradients by its definition. The mean may have zeros between their elements.
func spreadOf(weights []float32, said [][]float32, mean []float32) Spread {
	s := Spread{Squares: make([]float64, len(said)), Dots: make([]float64, len(said))}
	for _, x := range mean {
		s.Mean += float64(x) * float64(x)
	}
	for r, d := range said {
		for q, weight := range weights { // the mean is the sum of all, weighed
			for i := range d {
				s.Dots[r] += float64(weight) * float64(d[i]) * float64(said[q][i])
			}
		}
		for _, x := range d {
			s.Squares[r] += float64(x) * float64(x)
		}
		if weights[r] == 0 {
			s.Dots[r], s.Squares[r] = 0, 0
		}
	}
	return s
}

// like reports whether two spreads are the same but for rounding.
func (s Spread) like(other Spread) bool {
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-5*(math.Abs(a)+s.Mean) }
	return near(s.Mean, other.Mean) && slices.EqualFunc(s.Squares, other.Squares, near) && slices.EqualFunc(s.Dots, other.Dots, near)
}

// TestSpread: what is said of outer gradients, by hand.
func TestSpread(t *testing.T) {
	half := []float32{0.5, 0.5}
	for name, c := range map[string]struct {
		a, b          []float32
		drift, cosine float64
	}{
		"alike":        {[]float32{1, 2}, []float32{1, 2}, 0, 1},
		"at an angle":  {[]float32{3, 0}, []float32{0, 3}, 1, 0},
		"one is twice": {[]float32{1, 0}, []float32{2, 0}, 1. / 3, 1},
		"opposed":      {[]float32{2, 0}, []float32{-1, 0}, 3, -1},
		"nothing":      {[]float32{0, 0}, []float32{0, 1}, 1, 0},
		"both nothing": {[]float32{0, 0}, []float32{0, 0}, 0, 0},
	} {
		mean := []float32{(c.a[0] + c.b[0]) / 2, (c.a[1] + c.b[1]) / 2}
		s := spreadOf(half, [][]float32{c.a, c.b}, mean)
		if d, x := s.Drift(half), s.Cosine(0, 0.5); math.Abs(d-c.drift) > 1e-12 || math.Abs(x-c.cosine) > 1e-12 || s.Cosine(1, 0.5) != x {
			t.Errorf("%s: drift %v, cosine %v, want %v and %v", name, d, x, c.drift, c.cosine)
		}
	}
	var s Spread
	s.Add(Spread{Mean: 1, Squares: []float64{9, 4}, Dots: []float64{1, 2}})
	s.Add(Spread{Mean: 2, Squares: []float64{16, 0}, Dots: []float64{1, 0}})
	if s.Mean != 3 || s.Norm(0) != 5 || s.Norm(1) != 2 || !slices.Equal(s.Dots, []float64{2, 2}) {
		t.Errorf("together %+v", s)
	}
}

// TestMeetings has replicas that are cut differently meet in every codec, with weights that differ, and compares every bit with whole models in
// plain loops.
func TestMeetings(t *testing.T) {
	for name, cfg := range map[string]model.Config{"tied": tiedModel, "untied": untiedModel, "lora": loraModel} {
		for codec := compress.F32; codec.Valid(); codec++ {
			t.Run(fmt.Sprint(name, "/", codec), func(t *testing.T) {
				optimizer := outer.Optimizer{LR: 0.7, Momentum: 0.5}
				if codec == compress.TopK {
					optimizer = outer.Optimizer{LR: 1}
				}
				x := newTrial(t, Config{Model: cfg, Codec: codec, Seed: 3, Optimizer: optimizer, Late: codec%2 == 1}, []int{4}, []int{1, 4}, []int{2, 3, 4})
				for round, weights := range [][]float32{{1. / 3, 1. / 3, 1. / 3}, {0.25, 0.5, 0.25}, {0.125, 0.375, 0.5}} {
					x.weights = weights
					x.train()
					x.meet(plan.Step(10 * round))
				}
			})
		}
	}
}

// TestOneIsNotCounted: the rest goes on without it, and it merges nothing.
func TestOneIsNotCounted(t *testing.T) {
	for _, out := range []int{0, 2} {
		x := newTrial(t, Config{Model: tiedModel, Codec: compress.Int8, Optimizer: outer.Optimizer{LR: 0.7, Momentum: 0.5}}, []int{4}, []int{2, 4}, []int{4})
		x.weights = []float32{0.5, 0.5, 0.5}
		x.weights[out] = 0
		x.train()
		x.meet(0)
	}
}

// TestAnotherCutGoesOn: states that were loaded into stages of another cut make the same outer steps.
func TestAnotherCutGoesOn(t *testing.T) {
	for _, codec := range []compress.Codec{compress.Int4, compress.TopK} {
		x := newTrial(t, Config{Model: tiedModel, Codec: codec, Optimizer: outer.Optimizer{LR: 0.7, Momentum: 0.5}}, []int{4}, []int{1, 4})
		x.weights = []float32{0.5, 0.5}
		x.train()
		x.meet(0)
		x.replicas = []replica{x.newReplica(0, []int{2, 4}), x.newReplica(1, []int{1, 3, 4})}
		x.train()
		x.meet(10)
	}
}

func TestBadMessages(t *testing.T) {
	for codec := compress.F32; codec.Valid(); codec++ {
		cfg := Config{Model: tiedModel, Layers: plan.LayerRange{First: 1, End: 3}, Replicas: 3, Codec: codec, Optimizer: outer.Optimizer{LR: 1}}
		m, err := New(newDevice(t), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		m.Begin(0)
		params := make([]float32, tiedModel.TrainedLen(1))
		good, err := m.Offer(1, params)
		if err != nil {
			t.Fatal(err)
		}
		other := slices.Clone(good)
		for i := range 4 {
			other[i] ^= 0xff // a scale, an element or a place
		}
		for what, err := range map[string]error{
			"short":             m.Take(1, 1, good[1:]),
			"long":              m.Take(1, 1, append(slices.Clone(good), 0)),
			"none":              m.Take(1, 1, nil),
			"from itself":       m.Take(0, 1, good),
			"from nobody":       m.Take(3, 1, good),
			"from below nobody": m.Take(-1, 1, good),
		} {
			if !errors.Is(err, ErrMessage) {
				t.Errorf("%v, %s: %v", codec, what, err)
			}
		}
		if err := m.Take(1, 3, good); !errors.Is(err, ErrConfig) {
			t.Errorf("%v, a layer of another stage: %v", codec, err)
		}
		if codec != compress.TopK {
			if err := m.Take(1, 1, other); !errors.Is(err, ErrMessage) || !errors.Is(err, wire.ErrElement) && !errors.Is(err, wire.ErrValue) {
				t.Errorf("%v, elements that no replica sends: %v", codec, err)
			}
		}
		if _, err := m.Merge(1, []float32{0.5, 0.5, 0}, nil, nil); !errors.Is(err, ErrMissing) {
			t.Errorf("%v, merged without a message: %v", codec, err)
		}
		if err := errors.Join(m.Take(1, 1, good), m.Take(1, 1, slices.Clone(good))); err != nil {
			t.Errorf("%v, the same again: %v", codec, err)
		}
		second := slices.Clone(good)
		second[len(second)-1] ^= 1
		if err := m.Take(1, 1, second); !errors.Is(err, ErrMessage) {
			t.Errorf("%v, another one: %v", codec, err)
		}
		if _, err := m.Merge(1, []float32{0.5, 0.5, 0}, nil, params); !errors.Is(err, ErrConfig) {
			t.Errorf("%v: a late outer step that was not to be late: %v", codec, err)
		}
		if _, err := m.Merge(1, []float32{0.5, 0.5, 0}, make([]float32, 3), nil); !errors.Is(err, ErrConfig) {
			t.Errorf("%v, a tied embedding in the middle: %v", codec, err)
		}
		if _, err := m.Merge(1, []float32{0.5, 0.5, 0}, nil, nil); err != nil {
			t.Errorf("%v: %v", codec, err)
		}
		m.Begin(10)
		params[7] = float32(math.NaN())
		if _, err := m.Offer(1, params); !errors.Is(err, wire.ErrElement) {
			t.Errorf("%v, parameters that are not finite: %v", codec, err)
		}
	}
}

func TestBadSettings(t *testing.T) {
	good := Config{Model: tiedModel, Layers: plan.LayerRange{End: 4}, Replicas: 2, Codec: compress.Int8, Optimizer: outer.Optimizer{LR: 1}}
	for what, change := range map[string]func(c *Config){
		"a replica of others": func(c *Config) { c.Replica = 2 },
		"below all replicas":  func(c *Config) { c.Replica = -1 },
		"one replica":         func(c *Config) { c.Replicas = 1 },
		"too many replicas":   func(c *Config) { c.Replicas = 65 },
		"no codec":            func(c *Config) { c.Codec = 0 },
		"too many layers":     func(c *Config) { c.Layers.End = 5 },
		"a share":             func(c *Config) { c.Optimizer.Alpha = 0.5 },
		"no optimizer":        func(c *Config) { c.Optimizer = outer.Optimizer{} },
	} {
		cfg := good
		change(&cfg)
		if m, err := New(newDevice(t), cfg); err == nil {
			m.Close()
			t.Errorf("%s is taken", what)
		}
	}
	if _, err := New(null.New(), good); !errors.Is(err, ErrConfig) {
		t.Errorf("a device whose memory is not the node's: %v", err)
	}
}

func TestWeights(t *testing.T) {
	p := plan.Plan{Replicas: []plan.Pipeline{{Micros: 3}, {Micros: 1}, {Micros: 4}}}
	m := plan.Merged{Parts: []plan.Part{{Steps: 5}, {Steps: 15}, {}}}
	if got := Weights(p, m); !slices.Equal(got, []float32{0.5, 0.5, 0}) {
		t.Errorf("%v", got)
	}
}

// FuzzTake: no message of another replica breaks a meeting, and all that is taken can be merged.
func FuzzTake(f *testing.F) {
	for codec := compress.F32; codec.Valid(); codec++ {
		f.Add(byte(codec), make([]byte, MessageBytes(untiedModel, codec, 3)))
	}
	device := newDevice(f)
	f.Fuzz(func(t *testing.T, codec byte, message []byte) {
		cfg := Config{Model: untiedModel, Layers: plan.LayerRange{First: 3, End: 4}, Replicas: 2, Codec: compress.Codec(codec), Optimizer: outer.Optimizer{LR: 1}}
		if !cfg.Codec.Valid() {
			return
		}
		m, err := New(device, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		m.Begin(0)
		if _, err := m.Offer(3, make([]float32, untiedModel.TrainedLen(3))); err != nil {
			t.Fatal(err)
		}
		if err := m.Take(1, 3, message); err != nil {
			return
		}
		params, err := m.Merge(3, []float32{0.5, 0.5}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := wire.CheckElements(kernels.Float32Bytes(params), wire.RoundedUp(wire.ReducePart.Bound())); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLargeTensorsAreSampled: of tensors of hundreds of thousands of elements some are looked at, other ones in each round, and the sums are nearly those over all.
func TestLargeTensorsAreSampled(t *testing.T) {
	for _, codec := range []compress.Codec{compress.Int8, compress.TopK} {
		cfg := Config{
			Model: model.Config{Vocab: 64, Context: 16, Blocks: 1, Heads: 12, Channels: 384}, Layers: plan.LayerRange{First: 1, End: 2},
			Replicas: 2, Codec: codec, Optimizer: outer.Optimizer{LR: 0.7, Momentum: 0.5},
		}
		m, err := New(newDevice(t), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		n, weights := cfg.Model.TrainedLen(1), []float32{0.75, 0.25}
		noise, means := rand.New(rand.NewPCG(1, uint64(codec))), map[float64]bool{}
		for round := range 2 {
			m.Begin(plan.Step(50 * round))
			for r := range weights {
				params := make([]float32, n)
				for i := range params { // both have learned something in common, and rows are larger or smaller
					params[i] = float32(i%11) + float32(1+i/384%5)*float32(noise.NormFloat64())
				}
				message, err := m.Offer(1, params)
				if r == 0 { // it is taken for another one's, and then comes its own
					if err == nil {
						err = m.Take(1, 1, message)
					}
					m.layers[0].messages[0] = nil
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			ones := make([][]float32, len(weights))
			mean := make([]float32, n)
			for r, weight := range weights {
				ones[r] = make([]float32, n)
				if err := errors.Join(m.add(ones[r], 1, m.layers[0], m.layers[0].messages[r]), m.add(mean, weight, m.layers[0], m.layers[0].messages[r])); err != nil {
					t.Fatal(err)
				}
			}
			want := Spread{Squares: make([]float64, 2), Dots: make([]float64, 2)}
			want.Mean, _ = products(mean, mean)
			for r, one := range ones {
				want.Squares[r], want.Dots[r] = products(one, mean)
			}
			if err := m.note(m.layers[0], weights, mean); err != nil {
				t.Fatal(err)
			}
			got := m.Spread()
			for r, share := range weights {
				for name, c := range map[string][2]float64{
					"norm": {got.Norm(plan.Replica(r)) / want.Norm(plan.Replica(r)), 1}, "cosine": {got.Cosine(plan.Replica(r), float64(share)), want.Cosine(plan.Replica(r), float64(share))},
					"drift": {got.Drift(weights) / want.Drift(weights), 1},
				} {
					if math.Abs(c[0]-c[1]) > 0.02 {
						t.Errorf("%v: %s of replica %d is %.4f, over all elements %.4f", codec, name, r, c[0], c[1])
					}
				}
			}
			means[got.Mean/want.Mean] = true
		}
		if len(means) != 2 || means[1] {
			t.Errorf("%v: in two rounds the mean is, by that over all elements, %v: want others each time", codec, means)
		}
	}
}

// BenchmarkMerge makes the outer step of a layer of 7 M parameters with two replicas, and what of it is for what is said of how far these are apart.
func BenchmarkMerge(b *testing.B) {
	cfg := Config{
		Model: model.Config{Vocab: 64, Context: 16, Blocks: 1, Heads: 12, Channels: 768}, Layers: plan.LayerRange{First: 1, End: 2},
		Replicas: 2, Codec: compress.Int8, Optimizer: outer.Optimizer{LR: 0.7, Momentum: 0.5},
	}
	m, err := New(newDevice(b), cfg)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	m.Begin(0)
	params := make([]float32, cfg.Model.TrainedLen(1))
	for i := range params {
		params[i] = float32(i%101) / 100
	}
	message, err := m.Offer(1, params)
	if err == nil {
		err = m.Take(1, 1, message)
	}
	if err != nil {
		b.Fatal(err)
	}
	weights := []float32{0.5, 0.5}
	b.Run("all", func(b *testing.B) {
		b.SetBytes(int64(4 * len(params)))
		for b.Loop() {
			if _, err := m.Merge(1, weights, nil, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("spread", func(b *testing.B) {
		b.SetBytes(int64(4 * len(params)))
		for b.Loop() {
			if err := m.note(m.layers[0], weights, params); err != nil {
				b.Fatal(err)
			}
		}
	})
}
