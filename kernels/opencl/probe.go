package opencl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"pnode/kernels"
	"pnode/kernels/gpu"
)

// errNoUnit says that matrix units were tried and are not used.
var errNoUnit = errors.New("opencl: matrix units")

// openOnUnit opens the device with kernels on its matrix units, when the driver's compiler takes
// these kernels and what they compute is right.
func (i Info) openOnUnit() (*Device, error) {
	d, err := i.try(gpu.UnitSource(i.Unit))
	if err == nil {
		err = d.probe()
		err = errors.Join(err, d.Close())
	}
	if err != nil {
		return nil, err
	}
	return i.openWith([]gpu.Geometry{gpu.WithUnit(i.Unit)})
}

// try gives the device with the kernels on a unit alone.
func (i Info) try(source string) (*driver, error) {
	d := &driver{Info: i}
	err := d.connect()
	if err == nil {
		d.program, err = d.buildSource(source, gpu.WithUnit(i.Unit))
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// probe has the units multiply two small matrices, by the kernel unit_probe, and wants the product
// of every warp.
func (d *driver) probe() error {
	const rows, depth = 2 * 128, 32
	in, values := make([]byte, 0, 2*rows*depth), [rows * depth]float32{}
	for n := range values {
		values[n] = float32(n*n%37-18) / 4 // sums of products are exact
		in = binary.LittleEndian.AppendUint16(in, uint16(math.Float32bits(values[n])>>16))
	}
	shape := d.Unit.Shape()
	out := make([]float32, d.program.geometry.Group()/shape.Lanes*shape.Rows*shape.Columns)
	if err := d.run("unit_probe", kernels.Float32Bytes(out), in); err != nil {
		return err
	}
	for n, got := range out {
		row, column := n/shape.Columns%shape.Rows, n%shape.Columns
		want := float32(0)
		for k := range depth {
			want += values[row*depth+k] * values[(rows/2+column)*depth+k]
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
