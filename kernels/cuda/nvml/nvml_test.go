package nvml

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"pnode/kernels/native"
)

// fake is a library with two cards, of which the second tells no power.
var fake struct {
	fail map[function]status
	open int  // initialisations that were not undone
	lost bool // the first card
}

func result(f function, of status) uintptr {
	if s, ok := fake.fail[f]; ok {
		of = s
	}
	return uintptr(of)
}

var fakeLibrary = sync.OnceValue(func() *library {
	l := &library{}
	for f, entry := range map[function]any{
		initialize:    func() uintptr { fake.open++; return result(initialize, success) },
		shutdown:      func() uintptr { fake.open--; return result(shutdown, success) },
		driverVersion: func(to *byte, room uintptr) uintptr { return result(driverVersion, say(to, room, "550.54.15")) },
		deviceCount:   func(to *uint32) uintptr { *to = 2; return result(deviceCount, success) },
		deviceHandle: func(index uintptr, to *uintptr) uintptr {
			if fake.lost && index == 0 {
				return uintptr(cardIsLost)
			}
			*to = 0x70 + index
			return result(deviceHandle, success)
		},
		deviceName: func(handle uintptr, to *byte, room uintptr) uintptr {
			return result(deviceName, say(to, room, "Imaginary"))
		},
		devicePCI: func(handle uintptr, to *pciInfo) uintptr {
			to.domain, to.bus, to.device = 1, uint32(handle), 3
			return result(devicePCI, success)
		},
		deviceMemory: func(handle uintptr, to *memoryInfo) uintptr {
			to.total, to.free = 6<<30, 5<<30
			return result(deviceMemory, success)
		},
		deviceTemperature: func(handle, sensor uintptr, to *uint32) uintptr {
			*to = 41 + uint32(sensor)
			return result(deviceTemperature, success)
		},
		devicePower: func(handle uintptr, to *uint32) uintptr {
			if handle == 0x71 {
				return result(devicePower, notSupported)
			}
			*to = 90500
			return result(devicePower, success)
		},
	} {
		l[f] = native.Callback(entry)
	}
	return l
})

func say(to *byte, room uintptr, value string) status {
	copy(unsafe.Slice(to, room), value+"\x00")
	return success
}

func TestLook(t *testing.T) {
	m, err := fakeLibrary().look()
	if err != nil {
		t.Fatal(err)
	}
	want := []Card{
		{"Imaginary", "0001:70:03.0", 6 << 30, 5 << 30, 41, 90500},
		{"Imaginary", "0001:71:03.0", 6 << 30, 5 << 30, 41, -1},
	}
	if m.Driver != "550.54.15" || len(m.Cards) != 2 || m.Cards[0] != want[0] || m.Cards[1] != want[1] {
		t.Errorf("the machine: %+v", m)
	}
	if size := unsafe.Sizeof(pciInfo{}); size != 68 {
		t.Errorf("nvmlPciInfo_t has %d bytes, want 68", size)
	}
}

// TestFailures wants errors from what a card must tell, and the library closed after each.
func TestFailures(t *testing.T) {
	defer func() { fake.fail = nil }()
	for f := range functionCount {
		fake.fail, fake.open = map[function]status{f: mismatch}, 0
		_, err := fakeLibrary().look()
		optional := f == deviceMemory || f == deviceTemperature || f == devicePower
		if optional != (err == nil) {
			t.Errorf("%v fails: %v", f, err)
		}
		if err != nil && (!strings.Contains(err.Error(), f.String()) || !strings.Contains(err.Error(), "restart the machine")) {
			t.Errorf("%v fails: %v", f, err)
		}
		if f != initialize && fake.open != 0 {
			t.Errorf("%v fails: the library is left open", f)
		}
	}
}

// TestALostCardHidesNoOther: the error names it, and the other is told.
func TestALostCardHidesNoOther(t *testing.T) {
	fake.lost, fake.open = true, 0
	defer func() { fake.lost = false }()
	m, err := fakeLibrary().look()
	if len(m.Cards) != 1 || m.Cards[0].PCI != "0001:71:03.0" || err == nil || !strings.Contains(err.Error(), "card 0: ") || fake.open != 0 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestNoLibrary(t *testing.T) {
	if _, err := open([]string{"libnowhere.so.1"}); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("%v, want ErrNoLibrary", err)
	}
}
