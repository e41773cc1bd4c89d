package cpu

import "pnode/kernels"

// attentionCached appends to the cache, rows of all keys and then all values, and runs the
// forward pass over it.
func (d *Device) attentionCached(c kernels.Call) error {
	cache, qkv := floats(c.Args[1]), floats(c.Args[2])
	h := newHeads(c)
	h.past, h.keyStride = c.Dims[5], 2*h.K*h.D
	room := c.Dims[6] * h.keyStride
	if err := h.limit(ints(c.Args[3])); err != nil {
		return err
	}
	d.rows(h.B*h.T, h.keyStride, func(from, to int) {
		for row := from; row < to; row++ {
			at := row/h.T*room + (h.past+row%h.T)*h.keyStride
			copy(cache[at:at+h.keyStride], qkv[row*h.stride+h.H*h.D:])
		}
	})
	return d.attend(h, attended{out: floats(c.Args[0]), qkv: qkv, keys: func(b, kv int) (keys, values []float32) {
		keys = cache[b*room+kv*h.D:]
		return keys, keys[h.K*h.D:]
	}})
}
