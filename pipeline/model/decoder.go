package model

import (
	"fmt"

	"pnode/kernels"
)

// DecoderConfig asks for a whole model on one device that continues one sequence.
type DecoderConfig struct {
	Device kernels.Device
	Model  Config
	// Positions is how long the sequence may become; 0: the model's context. Learned
	// positions end there, rotary ones may go beyond.
	Positions int
	// Rows is how many tokens one pass takes at most; 0: up to 256. It bounds the memory
	// of a long prompt, nothing else depends on it.
	Rows int
	// Storage is what the matrices are stored as that products read. With halves so is what they multiply, as in a stack; all else, keys and
	// values too, is float32.
	Storage Storage
}

const defaultDecoderRows = 256

// Decoder runs a model forward over one growing sequence and keeps the keys and values of
// all positions, so that a further token costs a pass over one row. Its methods enqueue on
// the caller's queue and never wait.
type Decoder struct {
	cfg      DecoderConfig // Positions and Rows have values
	model    resolved
	mem      memory // keys and values are what it saves
	weights  decoderWeights
	embed    struct{ tokens, positions kernels.View }
	blocks   []decoderBlock
	head     decoderHead
	rotary   rotary
	a        decoderActivations
	rounding rounding // of what products read
	ids      []int32  // host copies of tokens and starts, alive until the queue's Sync
	length   int
}

// decoderActivations are the rows of one pass, shared by all layers.
type decoderActivations struct {
	tokens, starts         kernels.View // [R] int32
	x, normed, branch      kernels.View // [R,C]
	qkv, attended          kernels.View // [R,(H+2K)D], [R,H*D]
	hidden, activated      kernels.View // [R,F] or [R,2F], [R,F]
	mean, rstd             kernels.View // [R]
	lastNormed, lastLogits kernels.View // [C], [V]
}

func (c DecoderConfig) defaults() DecoderConfig {
	orElse(&c.Positions, c.Model.Context)
	orElse(&c.Rows, min(defaultDecoderRows, c.Positions))
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
	if err := checkEnum("storage", uint8(c.Storage), storageNames); err != nil {
		return err
	}
	return checkAll(nil, bounds[int]{"positions", r.Positions, 1, most}, bounds[int]{"rows", r.Rows, 1, r.Positions})
}

// NewDecoder allocates a decoder with parameters zero and an empty sequence. The error
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
	d.head.forward(check, d, d.pass(check, 1))
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
		lastNormed: f.take(m.Channels), lastLogits: f.take(m.Vocab),
	}
	if d.cfg.Storage != StorageF32 {
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
			b := decoderBlock{cache: d.mem.saved.take(2 * d.cfg.Positions * m.KVHeads * m.HeadDim)}
			b.attentionNorm = v.bareNorm()
			b.qkv, b.output = v.attentionLinears()
			b.mlpNorm = v.bareNorm()
			b.up, b.down = v.mlpLinears()
			d.blocks = append(d.blocks, b)
		}
	}
}

// Positions is how many positions the sequence may have.
func (d *Decoder) Positions() int { return d.cfg.Positions }

// Truncate forgets all positions from n on.
func (d *Decoder) Truncate(n int) {
	if n < 0 || n > d.length {
		panic(fmt.Sprintf("model: decoder of length %d truncated to %d", d.length, n))
	}
	d.length = n
}

// Feed appends tokens, each in [0,V), to the sequence and gives the logits [V] for the one
// that follows, valid until the next Feed. The queue must be synchronised before the next
// Feed. Too many tokens or none are a broken invariant and panic.
func (d *Decoder) Feed(q kernels.Queue, tokens []int32) kernels.View {
	if len(tokens) == 0 || len(tokens) > d.cfg.Positions-d.length {
		panic(fmt.Sprintf("model: decoder of length %d of %d is fed %d tokens", d.length, d.cfg.Positions, len(tokens)))
	}
	d.ids = append(d.ids[:0], tokens...)
	for first := 0; first < len(tokens); first += d.cfg.Rows {
		n := min(d.cfg.Rows, len(tokens)-first)
		q.Write(rowsOf(d.a.tokens, n, d.cfg.Rows), kernels.Int32Bytes(d.ids[first:first+n]))
		if d.model.slides(d.cfg.Positions) {
			starts := make([]int32, n)
			for i := range starts {
				starts[i] = d.model.windowStart(d.length + i)
			}
			q.Write(rowsOf(d.a.starts, n, d.cfg.Rows), kernels.Int32Bytes(starts))
		}
		joined := residuals{issuer: q}
		last := d.pass(&joined, n)
		if d.length += n; first+n == len(tokens) {
			d.head.forward(&joined, d, last)
		}
		joined.end()
	}
	return d.a.lastLogits
}

// pass runs n rows through embedding and blocks and gives the last one's output [C].
func (d *Decoder) pass(q issuer, n int) kernels.View {
	m, a, positions := d.model, d.a.first(n, d.cfg.Rows), d.embed.positions
	if positions.Len > 0 {
		past := d.length * m.Channels
		positions = positions.Slice(past, positions.Len-past)
	}
	q.Do(kernels.EmbedForward(a.x, a.tokens, d.embed.tokens, positions, 1, n, m.Channels, m.Vocab))
	for i := range d.blocks {
		d.blocks[i].forward(q, d, n)
	}
	return a.x.Slice((n-1)*m.Channels, m.Channels)
}

// Close frees the device memory; no queue may have calls pending on it.
func (d *Decoder) Close() { d.mem.free() }

// rowsOf is the first n of the rows of a view with that many.
func rowsOf(v kernels.View, n, rows int) kernels.View { return v.Slice(0, v.Len/rows*n) }
