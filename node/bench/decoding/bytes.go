package decoding

import (
	"pnode/kernels"
	"pnode/pipeline/model"
)

// StepBytes returns how much memory a step reads, which adds a token to each text: the weights once, and the keys and values of each
// text, in the mean of the steps. The few rows of an embedding are left out.
func (t Task) StepBytes(c model.Config) (sum int64) {
	const wide = 4 // bytes
	for l := 1; l < c.Layers(); l++ {
		for _, tensor := range c.LayerTensors(l) {
			if len(tensor.Shape) == 2 {
				sum += t.Storage.bytes(tensor)
			} else {
				sum += wide * int64(tensor.Len())
			}
		}
	}
	// The step after s tokens of a text reads its first Prompt+s positions: s is 1 to Tokens-1.
	positions := int64(2*t.Prompt+t.Tokens) / 2
	return sum + 2*wide*int64(t.Batch)*positions*int64(c.Blocks)*int64(keyWidth(c))
}

// bytes returns how much of a matrix a product reads.
func (p Precision) bytes(matrix model.Tensor) int64 {
	switch model.Storage(p) {
	case model.StorageF32:
		return 4 * int64(matrix.Len())
	case model.StorageInt8:
		return 4 * int64(kernels.MatrixWords(matrix.Shape[0], matrix.Shape[1]))
	}
	return 2 * int64(matrix.Len())
}

// keyWidth returns the channels of a key in all heads.
func keyWidth(c model.Config) int {
	if c.KVHeads == 0 {
		return c.Channels
	}
	return c.Channels / c.Heads * c.KVHeads
}
