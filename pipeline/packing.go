package pipeline

import (
	"slices"

	"pnode/kernels"
	"pnode/kernels/quant"
	"pnode/pipeline/wire"
)

// packing is memory of a device for one message in int8: a device that packs and unpacks messages
// itself copies a quarter of their bytes.
type packing struct {
	// words are the packed elements, steps the two sums of each group that tell of the error.
	words, steps kernels.Buffer
}

// packingBytes is the size of a packing for n elements.
func packingBytes(n int) int64 { return 4 * int64(quant.Words(n)+2*quant.Groups(n)) }

func newPacking(d kernels.Device, n int) (*packing, error) {
	words, err := d.Alloc(kernels.I32, quant.Words(n))
	if err != nil {
		return nil, err
	}
	steps, err := d.Alloc(kernels.F32, 2*quant.Groups(n))
	if err != nil {
		words.Free()
		return nil, err
	}
	return &packing{words, steps}, nil
}

// holds tells whether rows can be packed here one after the other: all but the last in whole
// groups.
func (p *packing) holds(rows []kernels.View) bool {
	if p == nil || quant.Words(elements(rows)) > p.words.Len() {
		return false
	}
	return !slices.ContainsFunc(rows[:len(rows)-1], func(v kernels.View) bool { return v.Len%quant.Group != 0 })
}

// pack writes rows in int8 to words and what that changed to steps, both on the host.
func (p *packing) pack(q kernels.Queue, rows []kernels.View, noise wire.Noise, words []byte, steps []float32) {
	group := 0
	for _, v := range rows {
		q.Do(kernels.Quantize(p.at(group, v.Len), kernels.Whole(p.steps).Slice(2*group, 2*quant.Groups(v.Len)), v, v.Len, group, uint64(noise)))
		group += quant.Groups(v.Len)
	}
	q.Read(words, kernels.Whole(p.words).Slice(0, len(words)/4))
	q.Read(kernels.Float32Bytes(steps), kernels.Whole(p.steps).Slice(0, len(steps)))
}

// unpack writes to rows what words of the host are.
func (p *packing) unpack(q kernels.Queue, rows []kernels.View, words []byte) {
	q.Write(kernels.Whole(p.words).Slice(0, len(words)/4), words)
	group := 0
	for _, v := range rows {
		q.Do(kernels.Dequantize(v, p.at(group, v.Len), v.Len))
		group += quant.Groups(v.Len)
	}
}

// at is the place of n elements from a group on.
func (p *packing) at(group, n int) kernels.View {
	return kernels.Whole(p.words).Slice(quant.Words(group*quant.Group), quant.Words(n))
}

func (p *packing) free() {
	if p != nil {
		p.words.Free()
		p.steps.Free()
	}
}
