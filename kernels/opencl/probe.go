package opencl

import (
	"encoding/binary"
	"errors"
	"fmt"

	"pnode/kernels"
	"pnode/kernels/conform"
	"pnode/kernels/gpu"
)

// errNoUnit says that matrix units were tried and are not used.
var errNoUnit = errors.New("opencl: matrix units")

// tryUnit says what the device lacks of its matrix units: a half that the driver's compiler takes no
// kernels for, or that is multiplied wrong.
func (i Info) tryUnit() (lacks gpu.Lacks) {
	for {
		d, err := i.drive(gpu.UnitSource, i.geometry(lacks))
		switch {
		case err == nil:
			d.probeHalves(&lacks)
			return lacks
		case lacks.FastF16 != nil:
			lacks.FastBF16 = brief(err)
			return lacks
		}
		lacks.FastF16 = brief(err) // some compilers know bf16 alone
	}
}

// probeHalves adds the halves that the units multiply wrong to what is lacking, and closes the device.
func (d *driver) probeHalves(lacks *gpu.Lacks) {
	for _, half := range gpu.UnitHalves {
		if d.program.geometry.OnUnit(half) {
			lacks.Set(half, d.probe(half))
		}
	}
	if err := d.Close(); err != nil {
		lacks.FastBF16, lacks.FastF16 = err, err
	}
}

// Sizes of what a probe multiplies: two matrices of rows x depth numbers.
const probeRows, probeDepth = 128, 32

// probeNumber is the n-th number of both, in bf16 or f16 to the bit, as are sums of products.
func probeNumber(half kernels.DType, n int) float32 {
	x := float32(n*n%37-18) / 4
	if half == kernels.F16 && n < probeRows*probeDepth {
		x *= 0x1p-18 // not normal: there are units that take such for 0, and gradients are small
	}
	return x
}

// probe has the units multiply two small matrices of a half, by its kernel unit_probe_..., and wants the
// product of every warp.
func (d *driver) probe(half kernels.DType) error {
	in, values := make([]byte, 0, 4*probeRows*probeDepth), [2 * probeRows * probeDepth]float32{}
	for n := range values {
		values[n] = probeNumber(half, n)
		in = binary.LittleEndian.AppendUint16(in, conform.HalfBits(half, values[n]))
	}
	shape := d.Unit.Shape()
	out := make([]float32, d.program.geometry.Group()/shape.Lanes*shape.Rows*shape.Columns)
	if err := d.run(fmt.Sprintf("unit_probe_%v", half), kernels.Float32Bytes(out), in); err != nil {
		return err
	}
	for n, got := range out {
		row, column := n/shape.Columns%shape.Rows, n%shape.Columns
		want := float32(0)
		for k := range probeDepth {
			want += values[row*probeDepth+k] * values[(probeRows+column)*probeDepth+k]
		}
		if got != want {
			return fmt.Errorf("%w: warp %d computes %v as element (%d, %d) of a product, want %v",
				errNoUnit, n/(shape.Rows*shape.Columns), got, row, column, want)
		}
	}
	return nil
}

// run runs a kernel with parameters (out, in) in one work-group.
func (d *driver) run(kernel string, out, in []byte) (err error) {
	to, err := d.Alloc(len(out))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Free(to)) }()
	from, err := d.Alloc(len(in))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Free(from)) }()
	s, err := d.NewStream()
	if err != nil {
		return err
	}
	err = errors.Join(
		s.Write(from, 0, in),
		s.Execute([]gpu.Launch{{
			Kernel: kernel, Groups: [3]int{1, 1, 1}, Items: [2]int{d.program.geometry.Group(), 1},
			Params: []gpu.Param{{Bits: uint64(to), Bytes: 8}, {Bytes: 8}, {Bits: uint64(from), Bytes: 8}, {Bytes: 8}},
		}}),
		s.Read(out, to, 0),
	)
	return errors.Join(err, s.Sync(), s.Close())
}
