package model

import (
	"pnode/kernels"
	"pnode/kernels/host"
)

// decoderWeights are the parameters of all layers. With storage in halves or int8 the matrices that products and the embedding read are
// stored so alone, and the rest is float32.
type decoderWeights struct {
	params []kernels.View // by layer, [LayerLen] or the rest
	halves []kernels.View // by layer, [LayerLen]; none with F32 or int8 storage
	int8   []int8Matrices // by layer; none with other storage
}

// int8Matrices holds the matrices of a layer.
type int8Matrices struct {
	from *arena
	tied kernels.View // the embedding's words, for the head; absent where that has its own
	all  []int8Matrix
}

// int8Matrix is a matrix [rows,cols] at off in its layer's vector: one tensor, or several that a product reads as one.
type int8Matrix struct {
	off, rows, cols int
	words           kernels.View // [MatrixWords]
}

// take takes memory for a matrix.
func (l *int8Matrices) take(m int8Matrix) kernels.View {
	if m.words = l.tied; m.words.Len == 0 {
		m.words = l.from.take(kernels.MatrixWords(m.rows, m.cols))
	}
	l.all = append(l.all, m)
	return m.words
}

// takeWeights takes memory for all layers.
func (d *Decoder) takeWeights() {
	state := State{cfg: StackConfig{Model: d.cfg.Model, End: d.cfg.Model.Layers()}}
	if d.cfg.Storage == StorageF32 {
		d.weights.params = state.vectors(&d.mem.params, 0, d.model.LayerLen, state.SharedTail())
		return
	}
	if d.cfg.Storage == StorageInt8 {
		d.weights.int8 = make([]int8Matrices, d.model.Layers())
	} else {
		d.weights.halves = state.vectors(&d.mem.copies, 0, d.model.LayerLen, state.SharedTail())
	}
	d.weights.params = state.vectors(&d.mem.params, 0, func(layer int) int {
		return d.model.restBefore(d.model.LayerTensors(layer), d.model.LayerLen(layer))
	}, 0)
}

// vectors are a layer's parameters, tensor by tensor.
func (d *Decoder) vectors(layer int) vectors {
	v := newVectors(d.model, layer, d.weights.params[layer], kernels.View{})
	switch w := &d.weights; {
	case w.halves != nil:
		v.copies, v.apart = w.halves[layer], true
	case w.int8 != nil:
		v.int8, v.apart = &w.int8[layer], true
		v.int8.from = &d.mem.int8
		if layer == d.model.Layers()-1 && d.model.Tied() {
			v.int8.tied = w.int8[0].all[0].words
		}
	}
	return v
}

// factor reports whether a product or the embedding reads a tensor: all matrices but learned positions.
func (m resolved) factor(t Tensor) bool {
	return len(t.Shape) == 2 && t.Name != m.names().positions+".weight"
}

// restBefore counts the elements of the tensors of a layer, before one that begins at off, that no product reads.
func (m resolved) restBefore(tensors []Tensor, off int) (n int) {
	for _, t := range tensors {
		if t.Off < off && !m.factor(t) {
			n += t.Len()
		}
	}
	return n
}

// roundAtOnce is how many elements of a layer are rounded at a time.
const roundAtOnce = 1 << 20

// Fill sets a layer's parameters to what from writes to dst [LayerLen], rounded to nearest where they are stored in halves or int8. The head's
// and the embedding's overlap in a tied matrix.
func (d *Decoder) Fill(q kernels.Queue, layer int, from func(dst []float32) error) error {
	if d.cfg.Storage == StorageF32 {
		return kernels.FillFrom(q, d.weights.params[layer], from)
	}
	values, err := host.Map(d.model.LayerLen(layer)) // not of Go's heap, which keeps what a large layer took
	if err != nil {
		return err
	}
	defer func() {
		_ = q.Sync() // what failed meanwhile may have left copies under way
		host.Unmap(values)
	}()
	if err := from(values); err != nil {
		return err
	}
	tensors := d.model.LayerTensors(layer)
	for _, t := range tensors {
		if of := values[t.Off:][:t.Len()]; !d.model.factor(t) {
			q.Write(d.weights.params[layer].Slice(d.model.restBefore(tensors, t.Off), len(of)), kernels.Float32Bytes(of))
		}
	}
	if d.cfg.Storage == StorageInt8 {
		return d.fillInt8(q, layer, values)
	}
	return d.fillHalves(q, layer, values)
}

// fillHalves rounds the matrices of a layer.
func (d *Decoder) fillHalves(q kernels.Queue, layer int, values []float32) error {
	room, err := d.cfg.Device.Alloc(kernels.F32, min(len(values), roundAtOnce))
	if err != nil {
		return err
	}
	defer room.Free()
	for _, t := range d.model.LayerTensors(layer) {
		of := values[t.Off:][:t.Len()]
		for first := 0; first < len(of) && d.model.factor(t); first += roundAtOnce {
			part := of[first:min(len(of), first+roundAtOnce)]
			wide := kernels.Whole(room).Slice(0, len(part))
			q.Write(wide, kernels.Float32Bytes(part))
			q.Do(kernels.Cast(d.weights.halves[layer].Slice(t.Off+first, len(part)), wide, len(part)))
		}
	}
	return q.Sync()
}

// fillInt8 packs the matrices of a layer, some panels of rows at a time.
func (d *Decoder) fillInt8(q kernels.Queue, layer int, values []float32) error {
	for _, m := range d.weights.int8[layer].all {
		atOnce := max(1, roundAtOnce/m.cols/kernels.PanelRows) * kernels.PanelRows
		words := make([]int32, kernels.MatrixWords(min(m.rows, atOnce), m.cols))
		for first := 0; first < m.rows; first += atOnce {
			rows := min(m.rows-first, atOnce)
			part := words[:kernels.MatrixWords(rows, m.cols)]
			kernels.PackInt8(part, values[m.off+first*m.cols:][:rows*m.cols], m.cols)
			q.Write(m.words.Slice(kernels.MatrixWords(first, m.cols), len(part)), kernels.Int32Bytes(part))
			if err := q.Sync(); err != nil { // part is written again
				return err
			}
		}
	}
	return q.Sync()
}
