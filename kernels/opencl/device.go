package opencl

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unsafe"

	"pnode/kernels"
	"pnode/kernels/gpu"
)

// Device is an OpenCL device as a kernels.Device.
type Device struct {
	*gpu.Device
	Info

	driver *driver
	lacks  gpu.Lacks
}

// Name is `opencl:0` and so on.
func (d *Device) Name() string { return d.driver.Name() }

// MaxBufferBytes is the largest size of a buffer, which may be a quarter of the memory.
func (d *Device) MaxBufferBytes() int64 { return int64(min(d.AllocBytes, math.MaxInt64)) }

// Products says what multiplies matrices of halves, empty where there is no choice: matrix units, or
// why these, or one of the halves, are not used.
func (d *Device) Products() string {
	if d.Unit == gpu.NoUnit {
		return d.lacks.Products("", "")
	}
	return d.lacks.Products(d.Unit.String(), "vector units", gpu.UnitHalves[:]...)
}

// Fast reports whether matrix units multiply a half.
func (d *Device) Fast(half kernels.DType) bool { return d.Geometry().OnUnit(half) }

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

// open tries matrix units first, alone, then the device with what is right of them.
func (i Info) open() (*Device, error) {
	var lacks gpu.Lacks
	if i.Unit != gpu.NoUnit {
		lacks = i.tryUnit()
	}
	dev, lacks, err := gpu.Try(lacks, i.without)
	if err != nil && i.geometry(lacks).Unit != gpu.NoUnit { // which the whole source may be too much with
		for _, half := range gpu.UnitHalves {
			if lacks.Fast(half) == nil {
				lacks.Set(half, brief(err))
			}
		}
		dev, lacks, err = gpu.Try(lacks, i.without)
	}
	if err != nil {
		return nil, err
	}
	dev.lacks = lacks
	return dev, nil
}

// geometry is the layout of the device's matrix units where it does not lack them, for all halves.
func (i Info) geometry(lacks gpu.Lacks) gpu.Geometry { return gpu.WithUnit(i.Unit).Without(lacks) }

// without opens the device with all that it does not lack.
func (i Info) without(lacks gpu.Lacks) (*Device, error) {
	geometries := i.geometries()
	if on := i.geometry(lacks); on.Unit != gpu.NoUnit {
		geometries = []gpu.Geometry{on}
	}
	d, err := i.drive(gpu.Source, geometries...)
	if err != nil {
		return nil, err
	}
	return &Device{Device: gpu.NewDevice(d, d.program.geometry), Info: i, driver: d}, nil
}

// brief returns the text of an error, of a compiler's log its first error.
func brief(err error) error {
	line, log, _ := strings.Cut(err.Error(), "\n")
	for said := range strings.Lines(log) {
		if strings.Contains(said, "error:") {
			return errors.New(line + " " + strings.TrimSpace(said))
		}
	}
	return errors.New(strings.TrimSuffix(line, ":"))
}

// Drive gives the driver under a device, with the kernels for one geometry, built but not
// tested.
func (i Info) Drive(g gpu.Geometry) (driver gpu.Driver, err error) {
	guardSignals(func() { driver, err = i.drive(gpu.Source, g) })
	return driver, err
}

// drive gives the driver with the kernels of a source, for the first geometry that the device takes.
func (i Info) drive(source func(gpu.Geometry) string, geometries ...gpu.Geometry) (*driver, error) {
	d, s := &driver{Info: i}, success
	d.context = d.lib.create(createContext, 0, 1, uintptr(unsafe.Pointer(&d.id)), 0, 0, uintptr(unsafe.Pointer(&s)))
	err := s.err(createContext)
	if err == nil {
		d.fills, err = d.commandQueue()
	}
	if err == nil {
		d.program, err = d.build(source, geometries)
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}
