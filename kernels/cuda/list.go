package cuda

import (
	"fmt"
	"strings"
	"unsafe"

	"pnode/kernels"
)

// Info is a card that was found.
type Info struct {
	Index int // of cuda:Index
	Name  string
	// PCI is the place in the machine, as 0000:65:00.0.
	PCI string
	// Driver is the newest version of CUDA that the driver knows, as 12.4.
	Driver string
	// Compute is the compute capability.
	Compute         Capability
	Multiprocessors int // how many
	MemoryBytes     uint64
	// Integrated reports that the card shares the machine's memory.
	Integrated bool
	// Unusable says why the card cannot be opened; empty for one that can.
	Unusable string

	lib      *library
	loadBLAS func() (*blasLibrary, error) // nil to do without
	device   uintptr
}

// Capability is a generation of cards: 8.0 is 80.
type Capability int

func (c Capability) String() string { return fmt.Sprintf("%d.%d", int(c)/10, int(c)%10) }

// Numbers of cuDeviceGetAttribute.
const (
	attributeMultiprocessors = 16
	attributeIntegrated      = 18
	attributeComputeMode     = 20
	attributeMajor           = 75
	attributeMinor           = 76
)

const (
	computeProhibited = 2
	// oldestDriver is CUDA 11.0, as cuDriverGetVersion tells it.
	oldestDriver = 11000
)

// List finds the cards, in the driver's order. The error wraps ErrNoLibrary where there is no
// driver; a driver without a card is none.
func List() ([]Info, error) {
	lib, err := load()
	if err != nil {
		return nil, err
	}
	list, err := lib.list()
	for k := range list {
		list[k].loadBLAS = loadBLAS
	}
	return list, err
}

func (l *library) list() (list []Info, err error) {
	if r := l.call(initialize, 0); r == noDevice {
		return nil, nil
	} else if r != success {
		return nil, r.err(initialize)
	}
	var count, version int32
	if err := l.check(driverGetVersion, uintptr(unsafe.Pointer(&version))); err != nil {
		return nil, err
	}
	if err := l.check(deviceGetCount, uintptr(unsafe.Pointer(&count))); err != nil {
		return nil, err
	}
	for index := range count {
		info, err := l.describe(index)
		if err != nil {
			return nil, err
		}
		info.Driver = fmt.Sprintf("%d.%d", version/1000, version%1000/10)
		if version < oldestDriver {
			info.Unusable = "the driver is older than version 450 (CUDA 11): update it"
		}
		list = append(list, info)
	}
	return list, nil
}

func (l *library) describe(index int32) (info Info, err error) {
	var device int32
	if err := l.check(deviceGet, uintptr(unsafe.Pointer(&device)), uintptr(index)); err != nil {
		return info, err
	}
	info = Info{Index: int(index), lib: l, device: uintptr(device)}
	info.Name, info.PCI = l.text(deviceGetName, info.device), strings.ToLower(l.text(deviceGetPCIBusID, info.device))
	info.Compute = Capability(10*l.attribute(info.device, attributeMajor) + l.attribute(info.device, attributeMinor))
	info.Multiprocessors = l.attribute(info.device, attributeMultiprocessors)
	info.Integrated = l.attribute(info.device, attributeIntegrated) != 0
	switch {
	case info.Compute < oldestCard:
		info.Unusable = fmt.Sprintf("the card has compute capability %v, the kernels need %v", info.Compute, oldestCard)
	case l.attribute(info.device, attributeComputeMode) == computeProhibited:
		info.Unusable = "the card's compute mode prohibits its use (nvidia-smi -c 0 allows it)"
	}
	return info, l.check(deviceTotalMem, uintptr(unsafe.Pointer(&info.MemoryBytes)), info.device)
}

// text is a property that is a string, empty where the driver does not tell.
func (l *library) text(f function, device uintptr) string {
	var buffer [256]byte
	if l.call(f, uintptr(unsafe.Pointer(&buffer)), uintptr(len(buffer)), device) != success {
		return ""
	}
	text, _, _ := strings.Cut(string(buffer[:]), "\x00")
	return strings.TrimSpace(text)
}

// attribute is a property that is a number, 0 where the driver does not tell.
func (l *library) attribute(device, number uintptr) int {
	var value int32
	if l.call(deviceGetAttribute, uintptr(unsafe.Pointer(&value)), number, device) != success {
		return 0
	}
	return int(value)
}

// Features lists what a card has and the kernels use beyond the least.
func (i Info) Features() (features []string) {
	if i.Unusable != "" {
		return nil
	}
	for _, half := range []kernels.DType{kernels.BF16, kernels.F16} {
		if i.build().geometry.Multiplies(half) {
			features = append(features, fmt.Sprintf("%v matrix units", half))
		}
	}
	return features
}
