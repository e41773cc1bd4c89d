package meeting

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"pnode/kernels"
	"pnode/pipeline/compress"
	"pnode/pipeline/model"
	"pnode/pipeline/outer"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Errors of this package.
var (
	// ErrConfig is wrapped by errors about settings that no plan has.
	ErrConfig = errors.New("meeting: bad settings")
	// ErrMessage is wrapped by errors about a message that its sender is to blame for.
	ErrMessage = errors.New("meeting: bad message")
	// ErrMissing is wrapped by errors about messages that did not come.
	ErrMissing = errors.New("meeting: a message is missing")
)

// Config says whose meeting it is.
type Config struct {
	Model model.Config
	// Layers are the stage's.
	Layers plan.LayerRange
	// Replica is the stage's, of so many.
	Replica  plan.Replica
	Replicas int
	// Codec writes messages, rounded by numbers of the run's Seed. Optimizer makes the outer steps.
	Codec     compress.Codec
	Seed      uint64
	Optimizer outer.Optimizer
	// Late: some outer steps are made after inner steps of the next round.
	Late bool
}

// State is a layer's own and common state after an outer step, [TrainedLen] each.
type State struct {
	Reference []float32
	// Momentum is outer.Vectors.Momentum; nil where the optimizer has none.
	Momentum []float32
	// Missed is what this replica's messages lack; nil under f32, whose messages lack nothing.
	Missed []float32
}

// Meeting is a stage's part in outer steps. One goroutine at a time may use it.
type Meeting struct {
	cfg    Config
	device kernels.Device
	queue  kernels.Queue
	from   plan.Step
	layers []*layer
	// Scratch, as long as the longest layer: parameters, the outer gradient or the mean, and what is decoded to be looked at.
	params, gradient kernels.View
	decoded          []float32
	tied             []float32 // the mean outer gradient of the embedding
	spread           Spread    // of the layers that are merged in this round
	buffers          []kernels.Buffer
}

// layer is one with something to learn.
type layer struct {
	number    int
	len       int
	tensors   []tensor
	bytes     int
	reference kernels.View
	momentum  kernels.View // absent without momentum
	missed    []float32
	left      kernels.View // parameters as they were offered; absent unless Config.Late
	messages  [][]byte     // by replica, of this round
}

// New returns a meeting whose layers have no state yet, see Load. The device's buffers must be in the node's memory. Close frees them.
func New(device kernels.Device, cfg Config) (*Meeting, error) {
	switch {
	case cfg.Replica < 0 || int(cfg.Replica) >= cfg.Replicas || cfg.Replicas < 2 || cfg.Replicas > plan.MaxLocalReplicas:
		return nil, fmt.Errorf("%w: replica %d of %d", ErrConfig, cfg.Replica, cfg.Replicas)
	case !cfg.Codec.Valid():
		return nil, fmt.Errorf("%w: %v", ErrConfig, cfg.Codec)
	case cfg.Layers.First < 0 || cfg.Layers.End > cfg.Model.Layers():
		return nil, fmt.Errorf("%w: layers %v of %d", ErrConfig, cfg.Layers, cfg.Model.Layers())
	case cfg.Optimizer.Alpha != 0:
		return nil, fmt.Errorf("%w: a share of a replica's own parameters in an outer step of the whole model", ErrConfig)
	}
	if err := cfg.Optimizer.Validate(); err != nil {
		return nil, err
	}
	m := &Meeting{cfg: cfg, device: device}
	if err := m.allocate(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Meeting) allocate() (err error) {
	if m.queue, err = m.device.NewQueue(); err != nil {
		return err
	}
	view := func(n int) kernels.View {
		if err != nil {
			return kernels.View{}
		}
		var b kernels.Buffer
		if b, err = m.device.Alloc(kernels.F32, n); err != nil {
			return kernels.View{}
		}
		m.buffers = append(m.buffers, b)
		if _, visible := b.(kernels.HostVisible); !visible {
			err = fmt.Errorf("%w: the memory of device %s is not the node's", ErrConfig, m.device.Name())
		}
		return kernels.Whole(b)
	}
	longest := 0
	for number := m.cfg.Layers.First; number < m.cfg.Layers.End; number++ {
		l := &layer{number: number, len: m.cfg.Model.TrainedLen(number), tensors: tensorsOf(m.cfg.Model, number), messages: make([][]byte, m.cfg.Replicas)}
		if l.len == 0 {
			continue
		}
		l.bytes, l.reference = MessageBytes(m.cfg.Model, m.cfg.Codec, number), view(l.len)
		if m.cfg.Optimizer.Momentum > 0 {
			l.momentum = view(l.len)
		}
		if m.cfg.Late {
			l.left = view(l.len)
		}
		if m.cfg.Codec != compress.F32 {
			l.missed = make([]float32, l.len)
		}
		m.layers, longest = append(m.layers, l), max(longest, l.len)
	}
	if longest > 0 {
		m.params, m.gradient, m.decoded = view(longest), view(longest), make([]float32, longest)
	}
	return err
}

// Close frees the meeting's memory.
func (m *Meeting) Close() {
	if m.queue != nil {
		m.queue.Close()
	}
	for _, b := range m.buffers {
		b.Free()
	}
	m.buffers = nil
}

// Layers returns the layers that have messages, in order.
func (m *Meeting) Layers() (numbers []int) {
	for _, l := range m.layers {
		numbers = append(numbers, l.number)
	}
	return numbers
}

// find returns a layer that has messages.
func (m *Meeting) find(number int) (*layer, error) {
	i := slices.IndexFunc(m.layers, func(l *layer) bool { return l.number == number })
	if i < 0 {
		return nil, fmt.Errorf("%w: layer %d has nothing to exchange here", ErrConfig, number)
	}
	return m.layers[i], nil
}

// floats returns the elements of a view in the node's memory.
func floats(v kernels.View) []float32 {
	if !v.Present() {
		return nil
	}
	return v.Buf.(kernels.HostVisible).Floats(v.Off, v.Len)
}

// State returns a layer's state, in the meeting's own memory: it is valid until the next outer step, and written to by who loads one.
func (m *Meeting) State(number int) (State, error) {
	l, err := m.find(number)
	if err != nil {
		return State{}, err
	}
	return State{floats(l.reference), floats(l.momentum), l.missed}, nil
}

// Begin begins the round after an inner step: messages of the one before are gone.
func (m *Meeting) Begin(from plan.Step) {
	m.from, m.tied, m.spread = from, nil, Spread{}
	for _, l := range m.layers {
		clear(l.messages)
	}
}

// Offer returns this replica's message of a layer: reference - parameters, where params are a layer's trained parameters [TrainedLen] at
// the end of the round. An element that is not finite, or far beyond any gradient's, is an error that wraps wire.ErrElement.
func (m *Meeting) Offer(number int, params []float32) ([]byte, error) {
	l, err := m.find(number)
	if err != nil {
		return nil, err
	}
	if len(params) != l.len || l.messages[m.cfg.Replica] != nil {
		return nil, fmt.Errorf("%w: layer %d of %d parameters, offered once: got %d", ErrConfig, number, l.len, len(params))
	}
	v := m.vectors(l)
	copy(floats(v.Params), params)
	v.Left = l.left
	v.Subtract(m.queue)
	if err := m.queue.Sync(); err != nil {
		return nil, err
	}
	message, gradient := make([]byte, 0, l.bytes), floats(v.Gradient)
	for _, t := range l.tensors {
		missed := l.missed
		if missed == nil { // nothing is missing, before and after
			missed = m.decoded
			clear(missed[t.first:][:t.len])
		}
		place := compress.Place{Step: m.from, Replica: m.cfg.Replica, Layer: number, Tensor: t.number}
		message, err = m.cfg.Codec.Append(message, missed[t.first:][:t.len], gradient[t.first:][:t.len], wire.ReducePart.Bound(), place.Noise(m.cfg.Seed))
		if err != nil {
			return nil, fmt.Errorf("outer gradient of layer %d: %w", number, err)
		}
	}
	l.messages[m.cfg.Replica] = message
	return message, nil
}

// vectors returns a layer's vectors, with scratch for its parameters and gradient.
func (m *Meeting) vectors(l *layer) outer.Vectors {
	return outer.Vectors{Params: m.params.Slice(0, l.len), Gradient: m.gradient.Slice(0, l.len), Reference: l.reference, Momentum: l.momentum}
}

// Take keeps another replica's message of a layer, once it has looked at all of it. What no honest replica sends is an error that wraps
// ErrMessage: another size, elements out of bounds, or another message than before. The meeting keeps the bytes.
func (m *Meeting) Take(from plan.Replica, number int, message []byte) error {
	l, err := m.find(number)
	switch {
	case err != nil:
		return err
	case from < 0 || int(from) >= m.cfg.Replicas || from == m.cfg.Replica:
		return fmt.Errorf("%w: it is from replica %d, this is %d of %d", ErrMessage, from, m.cfg.Replica, m.cfg.Replicas)
	case l.messages[from] != nil && bytes.Equal(l.messages[from], message):
		return nil
	case l.messages[from] != nil:
		return fmt.Errorf("%w: replica %d has sent two for layer %d", ErrMessage, from, number)
	case len(message) != l.bytes:
		return fmt.Errorf("%w: %d bytes from replica %d for layer %d, want %d", ErrMessage, len(message), from, number, l.bytes)
	}
	if err := m.add(m.decoded[:l.len], 1, l, message); err != nil {
		return fmt.Errorf("%w: from replica %d for layer %d: %w", ErrMessage, from, number, err)
	}
	l.messages[from] = message
	return nil
}

// add adds weight times a layer's message to sum [TrainedLen].
func (m *Meeting) add(sum []float32, weight float32, l *layer, message []byte) error {
	for _, t := range l.tensors {
		n := m.cfg.Codec.Bytes(t.len)
		if err := m.decode(sum[t.first:][:t.len], weight, message[:n]); err != nil {
			return fmt.Errorf("tensor %d: %w", t.number, err)
		}
		message = message[n:]
	}
	return nil
}

// decode adds weight times a tensor of a message, or a part of one, to sum.
func (m *Meeting) decode(sum []float32, weight float32, b []byte) error {
	return m.cfg.Codec.Add(sum, weight, b, wire.RoundedUp(wire.ReducePart.Bound()))
}

// Sum returns plan.Part.Sum of a replica's report of its inner steps, as it is sent, and of the hashes of its messages, of all layers of the model in order.
func Sum(report []byte, hashes []plan.Hash) plan.Hash {
	h := sha256.New()
	for _, sum := range hashes {
		h.Write(sum[:])
	}
	h.Write(report) // all that comes before has one length
	return plan.Hash(h.Sum(nil))
}
