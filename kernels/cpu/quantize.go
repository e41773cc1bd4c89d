package cpu

import (
	"pnode/kernels"
	"pnode/kernels/quant"
)

// groupBytes is the size of a whole group.
const groupBytes = quant.ScaleBytes + quant.Group

// groupNumbers is how many numbers of the noise a group takes.
const groupNumbers = quant.Group / 4

func (d *Device) quantize(c kernels.Call) {
	words, steps, x := hostBytes(c.Args[0]), floats(c.Args[1]), floats(c.Args[2])
	clear(words[quant.Bytes(len(x)):])
	first := uint64(c.Dims[1]) * groupNumbers
	d.ranges(len(x), func(from, to int) {
		for ; from < to; from += quant.Group {
			g := from / quant.Group
			group := x[from:min(to, from+quant.Group)]
			b := words[g*groupBytes:]
			wrong, all := quant.Pack(b, group, c.Random.Key, first+uint64(g)*groupNumbers)
			steps[2*g], steps[2*g+1] = quant.InSteps(b, wrong, all)
		}
	})
}

func (d *Device) dequantize(c kernels.Call) {
	out, words := floats(c.Args[0]), hostBytes(c.Args[1])
	d.ranges(len(out), func(from, to int) {
		quant.Unpack(out[from:to], words[from/quant.Group*groupBytes:])
	})
}
