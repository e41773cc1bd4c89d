package opencl

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"pnode/kernels/conform"
	"pnode/kernels/gpu"
)

// Device is an OpenCL device as a kernels.Device.
type Device struct {
	*gpu.Device
	Info

	driver   *driver
	products string
	noF16    string // why, if so
}

// Name is `opencl:0` and so on.
func (d *Device) Name() string { return d.driver.Name() }

// MaxBufferBytes is the largest size of a buffer, which may be a quarter of the memory.
func (d *Device) MaxBufferBytes() int64 { return int64(min(d.AllocBytes, math.MaxInt64)) }

// Products tells what multiplies matrices of halves, empty where there is no choice: matrix units, or
// why these, or one of the halves, are not used.
func (d *Device) Products() string {
	if d.products == "" || d.noF16 == "" {
		return d.products + d.noF16
	}
	return d.products + "; " + d.noF16
}

// Open makes the device ready: it builds the kernels for the best geometry that the driver
// accepts, and runs them against the reference. Matrix units are used where the driver compiles for
// them and their results are right. The error says what is wrong with the device.
// It takes as long as the driver's compiler, which is seconds where it has nothing in store.
func (i Info) Open() (dev *Device, err error) {
	if i.Unusable != "" {
		return nil, fmt.Errorf("opencl: %s: %s", i.Name, i.Unusable)
	}
	guardSignals(func() { dev, err = i.open() })
	if err != nil {
		return nil, fmt.Errorf("opencl: %s: %w", i.Name, err)
	}
	return dev, nil
}

// open prefers matrix units, and says what became of them.
func (i Info) open() (*Device, error) {
	products := ""
	if i.Unit != gpu.NoUnit {
		dev, err := i.openOnUnit()
		if err == nil {
			dev.products = i.Unit.String()
			return dev, nil
		}
		products = fmt.Sprintf("vector units (%v: %v)", i.Unit, brief(err))
	}
	dev, err := i.openWith(i.geometries())
	if err != nil {
		return nil, err
	}
	dev.products = products
	return dev, nil
}

// openWith opens the device with kernels for the first of the geometries that the driver accepts, and
// runs them against the reference. One that is wrong in f16 alone does without; it is opened anew,
// as a kernel that fails may take the context with it.
func (i Info) openWith(geometries []gpu.Geometry) (*Device, error) {
	dev, err := i.tested(geometries)
	if err != nil {
		return nil, err
	}
	wrong := conform.SelfTestF16(dev)
	if wrong == nil {
		return dev, nil
	}
	if err := dev.Close(); err != nil {
		return nil, errors.Join(wrong, err)
	}
	if dev, err = i.tested(geometries); err != nil {
		return nil, errors.Join(wrong, err)
	}
	dev.WithoutF16()
	dev.noF16 = fmt.Sprintf("no f16 (%v)", brief(wrong))
	return dev, nil
}

// tested opens the device and tests all but f16.
func (i Info) tested(geometries []gpu.Geometry) (*Device, error) {
	d, err := i.drive(geometries)
	if err != nil {
		return nil, err
	}
	dev := &Device{Device: gpu.NewDevice(d, d.program.geometry), Info: i, driver: d}
	if err := conform.SelfTest(dev); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return dev, nil
}

// brief is what an error says, of a compiler's log its first error.
func brief(err error) string {
	line, log, _ := strings.Cut(err.Error(), "\n")
	for said := range strings.Lines(log) {
		if strings.Contains(said, "error:") {
			return line + " " + strings.TrimSpace(said)
		}
	}
	return strings.TrimSuffix(line, ":")
}

// Drive gives the driver under a device, with the kernels for one geometry, built but not
// tested.
func (i Info) Drive(g gpu.Geometry) (driver gpu.Driver, err error) {
	guardSignals(func() { driver, err = i.drive([]gpu.Geometry{g}) })
	return driver, err
}

func (i Info) drive(geometries []gpu.Geometry) (*driver, error) {
	d := &driver{Info: i}
	if err := d.start(geometries); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}
