package opencl

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"pnode/kernels/gpu"
)

// buildOptions allow a product and a sum to be fused. Faster ones (-cl-fast-relaxed-math) would
// let the compiler drop what NaN and infinity mean.
const buildOptions = "-cl-std=CL1.2 -cl-mad-enable"

// onProcessors are further options for processors: their compilers take minutes for what is unrolled
// and gain little, and they have no matrix units.
const onProcessors = " -DUNROLL= -DEMULATED"

// program is the built source with its kernels by name.
type program struct {
	lib      *library
	geometry gpu.Geometry
	handle   uintptr
	kernels  map[string]uintptr
}

// build takes the first geometry for which the driver can run every kernel; the error tells
// what is wrong with each.
func (d *driver) build(source func(gpu.Geometry) string, geometries []gpu.Geometry) (program, error) {
	var failures []error
	for _, g := range geometries {
		p, err := d.buildSource(source(g), g)
		if err == nil {
			return p, nil
		}
		failures = append(failures, err)
	}
	return program{}, errors.Join(failures...)
}

func (d *driver) buildSource(source string, g gpu.Geometry) (program, error) {
	p := program{lib: d.lib, geometry: g, kernels: map[string]uintptr{}}
	options := buildOptions
	if d.CPU {
		options += onProcessors
	}
	err := p.compile(d.context, d.id, source, options)
	if err == nil {
		err = p.findKernels(d.id)
	}
	if err != nil {
		p.release()
		return program{}, err
	}
	return p, nil
}

func (p *program) compile(context, device uintptr, source, options string) error {
	text, flags := cString(source), cString(options)
	var s status
	p.handle = p.lib.create(createProgramWithSource, context, 1, uintptr(unsafe.Pointer(&text)), 0, uintptr(unsafe.Pointer(&s)))
	if s != success {
		return s.err(createProgramWithSource)
	}
	s = p.lib.call(buildProgram, p.handle, 1, uintptr(unsafe.Pointer(&device)), uintptr(unsafe.Pointer(flags)), 0, 0)
	if s != success {
		return fmt.Errorf("%w:\n%s", s.err(buildProgram), p.buildLog(device))
	}
	return nil
}

// cString is text with a final 0, in memory that stays where it is.
func cString(text string) *byte { return unsafe.SliceData(append([]byte(text), 0)) }

// maxLogBytes bounds how much of a compiler's log an error shows.
const maxLogBytes = 8 << 10

// buildLog is the beginning of what the compiler said.
func (p *program) buildLog(device uintptr) string {
	const programBuildLog = 0x1183
	var size uintptr
	s := p.lib.call(getProgramBuildInfo, p.handle, device, programBuildLog, 0, 0, uintptr(unsafe.Pointer(&size)))
	if s != success || size == 0 || size > 64<<20 {
		return "(no log)"
	}
	log := make([]byte, size)
	s = p.lib.call(getProgramBuildInfo, p.handle, device, programBuildLog, size, uintptr(unsafe.Pointer(unsafe.SliceData(log))), 0)
	if s != success {
		return "(no log)"
	}
	text := strings.TrimSpace(strings.TrimRight(string(log), "\x00"))
	if len(text) > maxLogBytes {
		text = text[:maxLogBytes] + "\n..."
	}
	return text
}

// maxKernels bounds the kernels of the source.
const maxKernels = 256

// findKernels takes the kernels of the built program and refuses it when the driver cannot run
// one of them in work-groups of the geometry.
func (p *program) findKernels(device uintptr) error {
	const functionName, kernelWorkGroupSize = 0x1190, 0x11B0
	var handles [maxKernels]uintptr
	var count uint32
	s := p.lib.call(createKernelsInProgram, p.handle, maxKernels, uintptr(unsafe.Pointer(&handles)), uintptr(unsafe.Pointer(&count)))
	if s != success {
		return s.err(createKernelsInProgram)
	}
	for _, handle := range handles[:count] {
		name := p.lib.text(getKernelInfo, handle, functionName)
		p.kernels[name] = handle
		var items uintptr
		s := p.lib.call(getKernelWorkGroupInfo, handle, device, kernelWorkGroupSize, unsafe.Sizeof(items), uintptr(unsafe.Pointer(&items)), 0)
		if s != success {
			return s.err(getKernelWorkGroupInfo)
		}
		if want := p.geometry.Group(); int(items) < want {
			return fmt.Errorf("opencl: kernel %s runs in work-groups of %d items, want %d", name, items, want)
		}
	}
	return nil
}

// release gives everything back. Commands that are under way keep what they need.
func (p *program) release() {
	for _, handle := range p.kernels {
		p.lib.call(releaseKernel, handle)
	}
	p.kernels = nil
	if p.handle != 0 {
		p.lib.call(releaseProgram, p.handle)
		p.handle = 0
	}
}
