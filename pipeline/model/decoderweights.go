package model

import "pnode/kernels"

// decoderWeights are the parameters of all layers. With storage in halves the matrices that products and the embedding read are
// halves alone, and the rest is float32.
type decoderWeights struct {
	params []kernels.View // by layer, [LayerLen] or the rest
	halves []kernels.View // by layer, [LayerLen]; none with F32 storage
}

// takeWeights takes memory for all layers.
func (d *Decoder) takeWeights() {
	state := State{cfg: StackConfig{Model: d.cfg.Model, End: d.cfg.Model.Layers()}}
	if d.cfg.Storage == StorageF32 {
		d.weights.params = state.vectors(&d.mem.params, 0, d.model.LayerLen, state.SharedTail())
		return
	}
	d.weights.halves = state.vectors(&d.mem.copies, 0, d.model.LayerLen, state.SharedTail())
	d.weights.params = state.vectors(&d.mem.params, 0, func(layer int) int {
		return d.model.restBefore(d.model.LayerTensors(layer), d.model.LayerLen(layer))
	}, 0)
}

// vectors are a layer's parameters, tensor by tensor.
func (d *Decoder) vectors(layer int) vectors {
	v := newVectors(d.model, layer, d.weights.params[layer], kernels.View{})
	if d.weights.halves != nil {
		v.copies, v.apart = d.weights.halves[layer], true
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

// Fill sets a layer's parameters to what from writes to dst [LayerLen], rounded to nearest where they are stored in halves. The head's and the
// embedding's overlap in a tied matrix.
func (d *Decoder) Fill(q kernels.Queue, layer int, from func(dst []float32) error) error {
	if d.weights.halves == nil {
		return kernels.FillFrom(q, d.weights.params[layer], from)
	}
	values := make([]float32, d.model.LayerLen(layer))
	if err := from(values); err != nil {
		return err
	}
	room, err := d.cfg.Device.Alloc(kernels.F32, min(len(values), roundAtOnce))
	if err != nil {
		return err
	}
	defer room.Free()
	tensors := d.model.LayerTensors(layer)
	for _, t := range tensors {
		of := values[t.Off:][:t.Len()]
		if !d.model.factor(t) {
			q.Write(d.weights.params[layer].Slice(d.model.restBefore(tensors, t.Off), len(of)), kernels.Float32Bytes(of))
			continue
		}
		for first := 0; first < len(of); first += roundAtOnce {
			part := of[first:min(len(of), first+roundAtOnce)]
			wide := kernels.Whole(room).Slice(0, len(part))
			q.Write(wide, kernels.Float32Bytes(part))
			q.Do(kernels.Cast(d.weights.halves[layer].Slice(t.Off+first, len(part)), wide, len(part)))
		}
	}
	return q.Sync()
}
