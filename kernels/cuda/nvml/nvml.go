// Package nvml asks NVIDIA's management library, which comes with the driver, about the cards
// of a machine: the driver's version, memory that others use too, temperature, power. It needs
// no context on a card and so takes none of its memory. It computes nothing.
//
// A machine without the library is no error of the program: see ErrNoLibrary.
package nvml

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"
)

// Machine is a machine as the library describes it.
type Machine struct {
	Driver string // version of the driver, as 550.54.15
	Cards  []Card
}

// Card is the state of a card. Numbers that a card does not tell are -1.
type Card struct {
	Name string
	// PCI is the place in the machine, as 0000:65:00.0.
	PCI                    string
	MemoryBytes, FreeBytes int64
	Celsius                int
	Milliwatts             int
}

// Look asks the library once. An error may come with cards: with all but those that it names.
func Look() (Machine, error) {
	lib, err := open(libraryNames)
	if err != nil {
		return Machine{}, err
	}
	return lib.look()
}

func (l *library) look() (m Machine, err error) {
	if err := l.check(initialize); err != nil {
		return m, err
	}
	defer func() {
		err = errors.Join(err, l.check(shutdown))
	}()
	var version [80]byte
	if err := l.check(driverVersion, uintptr(unsafe.Pointer(&version)), uintptr(len(version))); err != nil {
		return m, err
	}
	m.Driver = text(version[:])
	var count uint32
	if err := l.check(deviceCount, uintptr(unsafe.Pointer(&count))); err != nil {
		return m, err
	}
	for index := range count { // one that fell off the bus does not hide the others
		var handle uintptr
		failed := l.check(deviceHandle, uintptr(index), uintptr(unsafe.Pointer(&handle)))
		var card Card
		if failed == nil {
			card, failed = l.card(handle)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("card %d: %w", index, failed))
			continue
		}
		m.Cards = append(m.Cards, card)
	}
	return m, err
}

// pciInfo is nvmlPciInfo_t.
type pciInfo struct {
	legacy              [16]byte
	domain, bus, device uint32
	_, _                uint32 // IDs of the card and of its maker
	_                   [32]byte
}

// memoryInfo is nvmlMemory_t, in bytes.
type memoryInfo struct{ total, free, _ uint64 }

// card needs a card's name and place; the rest some cards do not tell.
func (l *library) card(handle uintptr) (c Card, err error) {
	c = Card{MemoryBytes: -1, FreeBytes: -1, Celsius: -1, Milliwatts: -1}
	var name [96]byte
	if err := l.check(deviceName, handle, uintptr(unsafe.Pointer(&name)), uintptr(len(name))); err != nil {
		return c, err
	}
	var at pciInfo
	if err := l.check(devicePCI, handle, uintptr(unsafe.Pointer(&at))); err != nil {
		return c, err
	}
	c.Name, c.PCI = text(name[:]), fmt.Sprintf("%04x:%02x:%02x.0", at.domain, at.bus, at.device)
	var memory memoryInfo
	if l.check(deviceMemory, handle, uintptr(unsafe.Pointer(&memory))) == nil {
		c.MemoryBytes, c.FreeBytes = int64(memory.total), int64(memory.free)
	}
	const ofTheChip = 0
	var value uint32
	if l.check(deviceTemperature, handle, ofTheChip, uintptr(unsafe.Pointer(&value))) == nil {
		c.Celsius = int(value)
	}
	if l.check(devicePower, handle, uintptr(unsafe.Pointer(&value))) == nil {
		c.Milliwatts = int(value)
	}
	return c, nil
}

// text is a string of C.
func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}
