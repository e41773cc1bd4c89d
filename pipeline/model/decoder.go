package model

import (
	"fmt"

	"pnode/kernels"
)

// MaxSequences is how many sequences a decoder has at most.
const MaxSequences = 1024

// DecoderConfig asks for a whole model on one device that continues sequences.
type DecoderConfig struct {
	Device kernels.Device
	Model  Config
	// Sequences is how many are continued at one time, each with keys and values of its own; 0: one.
	Sequences int
	// Positions is how long a sequence may become; 0: the model's context. Learned
	// positions end there, rotary ones may go beyond.
	Positions int
	// Rows is how many tokens one pass takes at most; 0: up to 256. It bounds the memory
	// of a long prompt, nothing else depends on it.
	Rows int
	// Storage is what the matrices are stored as that products read. With halves so is what they multiply, as in a stack; all else, keys and
	// values too, is float32. StorageInt8 is for devices that support kernels.MatMulInt8.
	Storage Storage
}

const defaultDecoderRows = 256

// Decoder runs a model forward over growing sequences and keeps the keys and values of
// all positions, so that a further token costs a pass over one row of each. Its methods enqueue on
// the caller's queue and never wait.
type Decoder struct {
	cfg      DecoderConfig // Sequences, Positions and Rows have values
	model    resolved
	mem      memory // keys and values are what it saves
	weights  decoderWeights
	embed    struct{ tokens, positions kernels.View }
	blocks   []decoderBlock
	head     decoderHead
	rotary   rotary
	a        decoderActivations
	rounding rounding // of what products read
	ids      []int32  // host copies of tokens, alive until the queue's Sync
	lengths  []int    // by sequence
}

// decoderActivations are the rows of one pass, shared by all layers.
type decoderActivations struct {
	tokens, starts         kernels.View // [R] int32
	x, normed, branch      kernels.View // [R,C]
	qkv, attended          kernels.View // [R,(H+2K)D], [R,H*D]
	hidden, activated      kernels.View // [R,F] or [R,2F], [R,F]
	mean, rstd             kernels.View // [R]
	lastNormed, lastLogits kernels.View // [S,C], [S,V]
}

func (c DecoderConfig) defaults() DecoderConfig {
	orElse(&c.Positions, c.Model.Context)
	orElse(&c.Sequences, 1)
	orElse(&c.Rows, max(c.Sequences, min(defaultDecoderRows, c.Positions)))
	return c
}

func (c DecoderConfig) validate() error {
	if err := c.Model.Validate(); err != nil {
		return err
	}
	if c.Model.LoRA.On() {
		return bad("lora_rank is %d, but a decoder has no adapters: merge them (Config.Merge) and decode with the base", c.Model.LoRA.Rank)
	}
	most := c.Model.Context
	if c.Model.Positions == RoPE {
		most = maxContext
	}
	r := c.defaults()
	if c.Storage != StorageInt8 {
		if err := checkEnum("storage", uint8(c.Storage), storageNames); err != nil {
			return err
		}
	}
	return checkAll(nil, bounds[int]{"positions", r.Positions, 1, most}, bounds[int]{"sequences", r.Sequences, 1, MaxSequences}, bounds[int]{"rows", r.Rows, r.Sequences, max(r.Positions, r.Sequences)})
}

// NewDecoder allocates a decoder with parameters zero and empty sequences. The error
// wraps ErrBadConfig, kernels.ErrOutOfMemory, or kernels.ErrUnsupported when the device
// lacks a call.
func NewDecoder(cfg DecoderConfig) (*Decoder, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Device == nil {
		return nil, bad("device is nil: give the one that holds the model")
	}
	d := measuredDecoder(cfg)
	if err := d.bind(); err != nil {
		d.Close()
		return nil, fmt.Errorf("model: decoder of %d positions on %s: %w", d.cfg.Positions, cfg.Device.Name(), err)
	}
	return d, nil
}

func measuredDecoder(cfg DecoderConfig) *Decoder {
	d := &Decoder{cfg: cfg.defaults(), model: cfg.Model.resolved(), mem: newMemory(cfg.Device, cfg.Storage.half())}
	d.lengths = make([]int, d.cfg.Sequences)
	d.mem.saved.what, d.mem.layer.what = "keys and values", "activations"
	d.build()
	return d
}

func (d *Decoder) bind() error {
	if err := d.mem.bind(d.cfg.Device, nil); err != nil {
		return err
	}
	d.build()
	check := &rehearsal{ask: d.cfg.Device.Supports}
	d.head.forward(check, d, d.pass(check, []decoderRun{{count: 1, t: 1}}), 1)
	if check.err != nil {
		return check.err
	}
	return writeTables(d.cfg.Device, d.model, d.rotary)
}

// build binds layers and activations to memory.
func (d *Decoder) build() {
	m := d.model
	d.takeWeights()
	d.rotary = newRotary(m, &d.mem.tables, d.cfg.Positions)
	r, f := d.cfg.Rows, &d.mem.layer
	d.a = decoderActivations{
		tokens: d.mem.ids.take(r), starts: d.mem.ids.take(r),
		x: f.take(r * m.Channels), normed: f.take(r * m.Channels), branch: f.take(r * m.Channels),
		qkv: f.take(r * m.qkvWidth()), attended: f.take(r * m.queryWidth()),
		hidden: f.take(r * m.upWidth()), activated: f.take(r * m.MLP), mean: f.take(r), rstd: f.take(r),
		lastNormed: f.take(d.cfg.Sequences * m.Channels), lastLogits: f.take(d.cfg.Sequences * m.Vocab),
	}
	if d.weights.halves != nil {
		d.rounding.room = d.mem.layerHalves.take(r * max(m.Channels, m.queryWidth(), m.MLP))
	}
	d.blocks = nil
	for l := range d.cfg.Model.Layers() {
		v := d.vectors(l)
		switch l {
		case 0:
			d.embed.tokens, _ = v.nextFactor(1)
			if m.Positions == Learned {
				d.embed.positions, _ = v.next()
			}
		case m.Layers() - 1:
			d.head = decoderHead{norm: v.bareNorm(), project: v.linear(linearShape{out: m.Vocab, in: m.Channels, parts: 1})}
		default:
			b := decoderBlock{cache: d.mem.saved.take(d.cfg.Sequences * 2 * d.cfg.Positions * m.KVHeads * m.HeadDim)}
			b.attentionNorm = v.bareNorm()
			b.qkv, b.output = v.attentionLinears()
			b.mlpNorm = v.bareNorm()
			b.up, b.down = v.mlpLinears()
			d.blocks = append(d.blocks, b)
		}
	}
}

// Positions is how many positions a sequence may have.
func (d *Decoder) Positions() int { return d.cfg.Positions }

// Truncate forgets all positions of a sequence from n on.
func (d *Decoder) Truncate(sequence, n int) {
	if n < 0 || n > d.lengths[sequence] {
		panic(fmt.Sprintf("model: decoder of length %d truncated to %d", d.lengths[sequence], n))
	}
	d.lengths[sequence] = n
}

// Copy makes a sequence the same as another one.
func (d *Decoder) Copy(q kernels.Queue, to, from int) {
	room := 2 * d.cfg.Positions * d.model.KVHeads * d.model.HeadDim
	d.lengths[to] = d.lengths[from]
	used := room / d.cfg.Positions * d.lengths[from]
	for _, b := range d.blocks {
		if used > 0 && to != from {
			q.Do(kernels.Copy(b.cache.Slice(to*room, used), b.cache.Slice(from*room, used), used))
		}
	}
}

// Feed appends tokens, each in [0,V), to a sequence and gives the logits [V] for the one
// that follows, valid until the next Feed or Step. The queue must be synchronised before that.
// Too many tokens or none are a broken invariant and panic.
func (d *Decoder) Feed(q kernels.Queue, sequence int, tokens []int32) kernels.View {
	length := d.lengths[sequence]
	if len(tokens) == 0 || len(tokens) > d.cfg.Positions-length {
		panic(fmt.Sprintf("model: decoder of length %d of %d is fed %d tokens", length, d.cfg.Positions, len(tokens)))
	}
	d.ids = append(d.ids[:0], tokens...)
	for first := 0; first < len(tokens); first += d.cfg.Rows {
		n := min(d.cfg.Rows, len(tokens)-first)
		runs := []decoderRun{{sequence: sequence, count: 1, past: length + first, t: n}}
		joined := residuals{issuer: q}
		d.write(q, d.ids[first:first+n], runs)
		x := d.pass(&joined, runs)
		if first+n == len(tokens) {
			d.head.forward(&joined, d, x.Slice(x.Len-d.model.Channels, d.model.Channels), 1)
		}
		joined.end()
	}
	d.lengths[sequence] += len(tokens)
	return d.a.lastLogits.Slice(0, d.model.Vocab)
}

// Step appends a token to each of some sequences, in ascending order, and gives the logits [len(sequences),V] for those that follow: the
// weights are read once for all. On a processor each sequence gets the bits that Feed gives it. Feed says the rest.
func (d *Decoder) Step(q kernels.Queue, sequences []int, tokens []int32) kernels.View {
	var runs []decoderRun
	for i, s := range sequences {
		if d.lengths[s] >= d.cfg.Positions || i > 0 && s <= sequences[i-1] {
			panic(fmt.Sprintf("model: a step of sequence %d, of length %d of %d, in %v", s, d.lengths[s], d.cfg.Positions, sequences))
		}
		if last := len(runs) - 1; last >= 0 && runs[last].past == d.lengths[s] && runs[last].sequence+runs[last].count == s {
			runs[last].count++
		} else {
			runs = append(runs, decoderRun{sequence: s, count: 1, past: d.lengths[s], t: 1})
		}
		d.lengths[s]++
	}
	d.ids = append(d.ids[:0], tokens...)
	d.write(q, d.ids, runs)
	joined := residuals{issuer: q}
	d.head.forward(&joined, d, d.pass(&joined, runs), len(sequences))
	joined.end()
	return d.a.lastLogits.Slice(0, len(sequences)*d.model.Vocab)
}

// decoderRun are the rows of some sequences, one behind the other, that have t new positions each after as many past ones.
type decoderRun struct{ sequence, count, past, t int }

func (r decoderRun) rows() int { return r.count * r.t }

// eachRun calls do with each run and its first row, and returns the rows of all.
func eachRun(runs []decoderRun, do func(r decoderRun, first int)) (rows int) {
	for _, r := range runs {
		do(r, rows)
		rows += r.rows()
	}
	return rows
}

// write copies the tokens of a pass to the device, and where the windows of its rows begin.
func (d *Decoder) write(q kernels.Queue, tokens []int32, runs []decoderRun) {
	q.Write(rowsOf(d.a.tokens, len(tokens), d.cfg.Rows), kernels.Int32Bytes(tokens))
	if !d.model.slides(d.cfg.Positions) {
		return
	}
	var starts []int32
	eachRun(runs, func(r decoderRun, _ int) {
		for i := range r.rows() {
			starts = append(starts, d.model.windowStart(r.past+i%r.t))
		}
	})
	q.Write(rowsOf(d.a.starts, len(starts), d.cfg.Rows), kernels.Int32Bytes(starts))
}

// pass runs rows through embedding and blocks and gives their outputs [n,C].
func (d *Decoder) pass(q issuer, runs []decoderRun) kernels.View {
	m := d.model
	n := eachRun(runs, func(r decoderRun, first int) {
		positions := d.embed.positions
		if positions.Len > 0 {
			past := r.past * m.Channels
			positions = positions.Slice(past, positions.Len-past)
		}
		x, tokens := d.rowsOf(d.a.x, r, first), d.rowsOf(d.a.tokens, r, first)
		embed := kernels.EmbedForward
		if d.cfg.Storage == StorageInt8 {
			embed = kernels.EmbedInt8
		}
		q.Do(embed(x, tokens, d.embed.tokens, positions, r.count, r.t, m.Channels, m.Vocab))
	})
	for i := range d.blocks {
		d.blocks[i].forward(q, d, runs, n)
	}
	return rowsOf(d.a.x, n, d.cfg.Rows)
}

// rowsOf are a run's rows of an activation, from the given one on.
func (d *Decoder) rowsOf(v kernels.View, r decoderRun, first int) kernels.View {
	width := v.Len / d.cfg.Rows
	return v.Slice(first*width, r.rows()*width)
}

// Close frees the device memory; no queue may have calls pending on it.
func (d *Decoder) Close() { d.mem.free() }

// rowsOf is the first n of the rows of a view with that many.
func rowsOf(v kernels.View, n, rows int) kernels.View { return v.Slice(0, v.Len/rows*n) }
