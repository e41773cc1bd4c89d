package pipeline

import (
	"slices"

	"pnode/kernels"
	"pnode/kernels/quant"
	"pnode/pipeline/wire"
)

// quantizer owns device memory for one message in int8: a device that packs and unpacks messages
// itself copies a quarter of their bytes.
type quantizer struct {
	// words holds the packed elements, sums the two sums of each group that give the error.
	words, sums kernels.Buffer
}

func newQuantizer(d kernels.Device, n int) (*quantizer, error) {
	words, err := d.Alloc(kernels.I32, quant.Words(n))
	if err != nil {
		return nil, err
	}
	sums, err := d.Alloc(kernels.F32, 2*quant.Groups(n))
	if err != nil {
		words.Free()
		return nil, err
	}
	return &quantizer{words, sums}, nil
}

// fits reports whether rows can be packed here one after the other: all but the last in whole groups.
func (z *quantizer) fits(rows []kernels.View) bool {
	if z == nil || quant.Words(elements(rows)) > z.words.Len() {
		return false
	}
	return !slices.ContainsFunc(rows[:len(rows)-1], func(v kernels.View) bool { return v.Len%quant.Group != 0 })
}

// pack enqueues the packing of rows, and copies of the int8 words and of the error sums to the host.
func (z *quantizer) pack(q kernels.Queue, rows []kernels.View, noise wire.Noise, words []byte, sums []float32) {
	group := 0
	for _, v := range rows {
		errors := kernels.Whole(z.sums).Slice(2*group, 2*quant.Groups(v.Len))
		q.Do(kernels.Quantize(z.at(group, v.Len), errors, v, v.Len, group, uint64(noise)))
		group += quant.Groups(v.Len)
	}
	q.Read(words, kernels.Whole(z.words).Slice(0, len(words)/4))
	q.Read(kernels.Float32Bytes(sums), kernels.Whole(z.sums).Slice(0, len(sums)))
}

// unpack enqueues a copy of the host's words to the device, and their elements to rows.
func (z *quantizer) unpack(q kernels.Queue, rows []kernels.View, words []byte) {
	q.Write(kernels.Whole(z.words).Slice(0, len(words)/4), words)
	group := 0
	for _, v := range rows {
		q.Do(kernels.Dequantize(v, z.at(group, v.Len), v.Len))
		group += quant.Groups(v.Len)
	}
}

// at returns the words of n elements from a group on.
func (z *quantizer) at(group, n int) kernels.View {
	return kernels.Whole(z.words).Slice(quant.Words(group*quant.Group), quant.Words(n))
}

func (z *quantizer) free() {
	if z != nil {
		z.words.Free()
		z.sums.Free()
	}
}
