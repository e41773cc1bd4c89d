//go:build !static

package devices

import (
	"fmt"

	"pnode/kernels"
	"pnode/kernels/cuda"
	"pnode/kernels/cuda/nvml"
)

var nvidia = backend{kind: "cuda", list: listNVIDIA, open: openNVIDIA}

// listNVIDIA takes the driver's version and the free memory from the management library, where
// that is there too.
func listNVIDIA() (findings []Finding, err error) {
	list, err := cuda.List()
	if err != nil {
		return nil, err
	}
	machine, _ := nvml.Look() // the cards work without
	for _, info := range list {
		findings = append(findings, Finding{
			Name: fmt.Sprintf("cuda:%d", info.Index), Model: info.Name, Vendor: "NVIDIA", Platform: "CUDA " + info.Driver,
			Driver: machine.Driver, Version: fmt.Sprintf("compute capability %v", info.Compute), PCI: info.PCI,
			Units: info.Multiprocessors, MemoryBytes: clampInt64(info.MemoryBytes), AllocBytes: clampInt64(info.MemoryBytes),
			Shared: info.Integrated, Problem: info.Unusable, Features: info.Features(),
			FreeBytes: freeOf(machine, info.PCI),
		})
	}
	return findings, nil
}

// Cards asks the management library how the cards are: those that it tells of. It takes some milliseconds.
func Cards() (cards []Card) {
	machine, _ := nvml.Look() // the others stay unknown
	for _, c := range machine.Cards {
		cards = append(cards, Card{PCI: c.PCI, Celsius: c.Celsius, Milliwatts: c.Milliwatts})
	}
	return cards
}

// freeOf is the free memory of the card at a place, 0 where nobody tells.
func freeOf(m nvml.Machine, pci string) int64 {
	for _, card := range m.Cards {
		if card.PCI == pci {
			return max(card.FreeBytes, 0)
		}
	}
	return 0
}

func openNVIDIA(index int, _ bool) (kernels.Device, error) {
	list, err := cuda.List()
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= len(list) {
		return nil, fmt.Errorf("cuda: no card %d among %d", index, len(list))
	}
	return opened(list[index].Open())
}
