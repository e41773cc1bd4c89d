package cuda

import (
	"errors"
	"fmt"

	"pnode/kernels"
	"pnode/kernels/conform"
	"pnode/kernels/gpu"
)

// Device is a card as a kernels.Device.
type Device struct {
	*gpu.Device
	Info

	driver   *driver
	products string
}

// Name is `cuda:0` and so on.
func (d *Device) Name() string { return d.driver.Name() }

// FreeBytes is the memory that nobody has taken, other programs included.
func (d *Device) FreeBytes() (uint64, error) { return d.driver.freeBytes() }

// Products tells what multiplies matrices of halves: cuBLASLt, or the package's own kernels and why.
func (d *Device) Products() string { return d.products }

// Open makes the card ready: it has the driver compile the kernels and runs them against the
// reference. The error says what is wrong with the card or its driver. Where cuBLASLt is
// installed it does the products of halves, unless its results are wrong. A card that is wrong in
// f16 alone does without.
func (i Info) Open() (*Device, error) {
	dev, err := i.tested()
	if err == nil {
		if wrong := conform.SelfTestF16(dev); wrong != nil {
			dev, err = i.withoutF16(dev, wrong)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cuda:%d: %s: %w", i.Index, i.Name, err)
	}
	return dev, nil
}

// tested opens the card and tests all but f16.
func (i Info) tested() (*Device, error) {
	dev, err := i.open()
	if err != nil {
		return nil, err
	}
	if err := dev.test(); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return dev, nil
}

// withoutF16 opens the card anew: a kernel that fails may take the context with it.
func (i Info) withoutF16(dev *Device, wrong error) (*Device, error) {
	if err := dev.Close(); err != nil {
		return nil, errors.Join(wrong, err)
	}
	dev, err := i.tested()
	if err != nil {
		return nil, errors.Join(wrong, err)
	}
	dev.WithoutF16()
	dev.products += fmt.Sprintf("; no f16 (%v)", wrong)
	return dev, nil
}

func (d *Device) test() error {
	if err := d.testGraphs(); err != nil {
		return err
	}
	err := d.driver.startBLAS()
	if err == nil {
		if err = conform.SelfTest(d); err == nil {
			d.products = "cuBLASLt"
			return nil
		}
	}
	d.products = fmt.Sprintf("own kernels (%v)", err)
	return errors.Join(d.driver.stopBLAS(), conform.SelfTest(d))
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
