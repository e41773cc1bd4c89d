package devices

import (
	"errors"
	"strings"
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu"
)

// broken is a device whose queues have lost it.
type broken struct{ kernels.Device }

func (broken) Name() string { return "opencl:5" }

func (b broken) NewQueue() (kernels.Queue, error) {
	q, err := b.Device.NewQueue()
	return lostQueue{q}, err
}

type lostQueue struct{ kernels.Queue }

func (lostQueue) Sync() error { return kernels.ErrLost }

func TestWorkingLeavesOutWhatIsLost(t *testing.T) {
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	s := &Set{Devices: []Device{
		{broken{device}, Finding{Name: "opencl:5", Model: "a card"}},
		{device, findingOfCPU(device)},
	}}
	working, lost := s.Working()
	if len(working.Devices) != 1 || working.Named(CPU) == nil {
		t.Errorf("working: %v", working.Devices)
	}
	if len(lost) != 1 || !strings.Contains(lost[0], "opencl:5 (a card)") || !strings.Contains(lost[0], kernels.ErrLost.Error()) {
		t.Errorf("lost: %q", lost)
	}
	if err := device.Close(); err != nil {
		t.Fatal(err)
	}
	if err := lives(broken{device}); !errors.Is(err, kernels.ErrLost) {
		t.Errorf("a lost device: %v", err)
	}
}
