package cuda

import (
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"unsafe"

	"pnode/kernels/gpu"
)

// The kernels as PTX, compiled from package gpu's source.
//
//go:generate go run pnode/kernels/gpu/ptx -out ptx
//go:embed ptx/*.ptx.gz
var files embed.FS

// build is a file of PTX with the oldest cards that it is for, and what it was compiled for.
type build struct {
	oldest   Capability
	file     string
	geometry gpu.Geometry
}

// builds are the newest first.
var builds = []build{
	{80, "ptx/sm_80.ptx.gz", gpu.MatrixUnits},
	{75, "ptx/sm_75.ptx.gz", gpu.TuringUnits},
	{oldestCard, "ptx/sm_60.ptx.gz", gpu.Sides[0]},
}

// oldestCard is the least compute capability that there are kernels for.
const oldestCard Capability = 60

// oldestUnits is the least that has matrix units. Between it and the first with kernels for them
// cuBLASLt alone uses them.
const oldestUnits Capability = 70

// build is the newest that the card can run.
func (i Info) build() build {
	return builds[slices.IndexFunc(builds, func(b build) bool { return i.Compute >= b.oldest })]
}

// ptx is the text of the build.
func (b build) ptx() ([]byte, error) {
	packed, err := files.Open(b.file)
	if err != nil {
		return nil, err
	}
	defer packed.Close()
	r, err := gzip.NewReader(packed)
	if err != nil {
		return nil, fmt.Errorf("cuda: %s: %w", b.file, err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("cuda: %s: %w", b.file, err)
	}
	return text, nil
}

// kernel is a function of a loaded module with the size of its parameters.
type kernel struct {
	handle     uintptr
	paramBytes int
}

// module is PTX that the driver has compiled, with its kernels by name.
type module struct {
	handle  uintptr
	kernels map[string]kernel
}

// Numbers of cuModuleLoadDataEx.
const (
	jitErrorLogBuffer      = 5
	jitErrorLogBufferBytes = 6
)

// jitLog are the values of these options. The driver overwrites the number by that of the bytes
// in use.
type jitLog struct {
	buffer unsafe.Pointer
	bytes  uintptr
}

// maxLogBytes bounds how much of the compiler's log an error shows.
const maxLogBytes = 8 << 10

// loadModule has the driver compile PTX for the card of the current context; it takes seconds
// where the driver does not have the result in store.
func (l *library) loadModule(text []byte) (m module, err error) {
	m.kernels = map[string]kernel{}
	text = append(text, 0)
	names, log := [2]int32{jitErrorLogBuffer, jitErrorLogBufferBytes}, new([maxLogBytes]byte)
	values := jitLog{unsafe.Pointer(log), maxLogBytes}
	r := l.call(moduleLoadDataEx, uintptr(unsafe.Pointer(&m.handle)), uintptr(unsafe.Pointer(unsafe.SliceData(text))),
		uintptr(len(names)), uintptr(unsafe.Pointer(&names)), uintptr(unsafe.Pointer(&values)))
	if r != success {
		said, _, _ := strings.Cut(string(log[:]), "\x00")
		return module{}, fmt.Errorf("%w:\n%s", r.err(moduleLoadDataEx), strings.TrimSpace(said))
	}
	for _, e := range entries(string(text)) {
		name := append([]byte(e.name), 0)
		k := kernel{paramBytes: e.paramBytes()}
		if err := l.check(moduleGetFunction, uintptr(unsafe.Pointer(&k.handle)), m.handle, uintptr(unsafe.Pointer(unsafe.SliceData(name)))); err != nil {
			return m, fmt.Errorf("%s: %w", e.name, err)
		}
		m.kernels[e.name] = k
	}
	return m, nil
}

// entry is a kernel as PTX declares it.
type entry struct {
	name   string
	params []int // the size of each parameter in bytes
}

// paramBytes is the size of the parameters, each at a multiple of its size.
func (e entry) paramBytes() (n int) {
	for _, size := range e.params {
		n = (n+size-1)/size*size + size
	}
	return n
}

// paramSizes are the types of parameters that the kernels have.
var paramSizes = map[string]int{".u32": 4, ".f32": 4, ".b32": 4, ".u64": 8, ".b64": 8}

// entries are the kernels of a PTX text. Each parameter has a line of its own:
//
//	.visible .entry scale(
//		.param .u64 scale_param_0,
//		.param .f32 scale_param_1
//	)
func entries(text string) (list []entry) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, ".visible .entry "); ok {
			list = append(list, entry{name: strings.TrimSuffix(name, "(")})
			continue
		}
		declared, ok := strings.CutPrefix(line, ".param ")
		if !ok || len(list) == 0 || !strings.Contains(declared, list[len(list)-1].name+"_param_") {
			continue
		}
		last := &list[len(list)-1]
		last.params = append(last.params, paramSizes[strings.Fields(declared)[0]])
	}
	return list
}
