package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"pnode/kernels"
	"pnode/kernels/gpu"
)

// Device is a card as a kernels.Device.
type Device struct {
	*gpu.Device
	Info

	driver *driver
	noBLAS error // why cuBLASLt is not there, if so
	lacks  gpu.Lacks
}

// Name is `cuda:0` and so on.
func (d *Device) Name() string { return d.driver.Name() }

// FreeBytes is the memory that nobody has taken, other programs included.
func (d *Device) FreeBytes() (free uint64, err error) {
	err = d.driver.do(func() error {
		var total uint64
		return d.lib.check(memGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	})
	return free, err
}

// Products says what multiplies matrices of halves: cuBLASLt, or the package's own kernels and why.
func (d *Device) Products() string {
	if d.noBLAS != nil {
		return d.lacks.Products(fmt.Sprintf("own kernels (%v)", d.noBLAS), "")
	}
	return d.lacks.Products("cuBLASLt", "own kernels", d.blasHalves()...)
}

// Fast reports whether cuBLASLt multiplies a half.
func (d *Device) Fast(half kernels.DType) bool { return d.driver.blas.multiplies(half) }

// Open makes the card ready: it has the driver compile the kernels and runs them against the
// reference. The error says what is wrong with the card or its driver. Where cuBLASLt is
// installed it does the products of halves, but for a half of which its results are wrong. A card that
// is wrong in f16 alone does without.
func (i Info) Open() (*Device, error) {
	dev, lacks, err := gpu.Try(gpu.Lacks{}, i.without)
	if err != nil {
		return nil, fmt.Errorf("cuda:%d: %s: %w", i.Index, i.Name, err)
	}
	dev.lacks = lacks
	return dev, nil
}

// without opens the card with all that it does not lack.
func (i Info) without(lacks gpu.Lacks) (*Device, error) {
	dev, err := i.open()
	if err != nil {
		return nil, err
	}
	if err := dev.testGraphs(); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	dev.noBLAS = dev.driver.startBLAS(func(half kernels.DType) bool { return lacks.Fast(half) == nil })
	return dev, nil
}

// testGraphs has a graph made, changed and run, and does without graphs where its results are wrong.
func (d *Device) testGraphs() error {
	q, err := d.NewQueue()
	if err != nil {
		return err
	}
	x, err := d.Alloc(kernels.F32, 1)
	if err != nil {
		return errors.Join(err, q.Close())
	}
	defer x.Free()
	for round := range 4 { // as it comes first, captured, and changed
		q.Do(kernels.Fill(kernels.Whole(x), 1, float32(round)))
		want := float32(round)
		for range minIssues {
			q.Do(kernels.Scale(kernels.Whole(x), 1, float32(round)))
			want *= float32(round)
		}
		got := make([]float32, 1)
		q.Read(kernels.Float32Bytes(got), kernels.Whole(x))
		if err := q.Sync(); err != nil {
			return errors.Join(err, q.Close())
		}
		d.driver.plain = d.driver.plain || got[0] != want
	}
	return q.Close()
}

// open is Open without the test.
func (i Info) open() (*Device, error) {
	if i.Unusable != "" {
		return nil, errors.New(i.Unusable)
	}
	d := &driver{Info: i}
	if err := d.start(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	dev := &Device{Device: gpu.NewDevice(d, i.build().geometry), Info: i, driver: d}
	d.budget = &dev.Budget
	return dev, nil
}
