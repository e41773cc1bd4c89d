package hardware

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/devices"
	"pnode/kernels/emulate"
	"pnode/kernels/host"
	"pnode/kernels/null"
	"pnode/node/config"
	"pnode/planner/plan"
)

// TestCeiling: a card's memory has a limit in any case, the host's where the user sets one.
func TestCeiling(t *testing.T) {
	const gib = 1 << 30
	card, host := devices.Finding{MemoryBytes: 16 * gib}, devices.Finding{Shared: true}
	for _, c := range []struct {
		finding devices.Finding
		allowed config.Memory
		want    int64
	}{
		{card, "", 15 * gib},
		{card, "1GiB", gib},
		{card, "20%", 3 * gib},
		{host, "", 0},
		{host, "50%", 0},
		{host, "1GiB", gib},
	} {
		if got := ceiling(c.finding, c.allowed.Of("any")); got != c.want {
			t.Errorf("%+v with %q: %d bytes, want %d", c.finding, c.allowed, got, c.want)
		}
	}
}

// TestEnough: a card needs what measuring it takes; the host's memory is the planner's to judge.
func TestEnough(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		finding devices.Finding
		allowed config.Memory
		want    string // in the error, empty for none
	}{
		{devices.Finding{MemoryBytes: 4 * gib}, "", ""},
		{devices.Finding{MemoryBytes: 4 * gib}, "100MB", ""},
		{devices.Finding{MemoryBytes: 4 * gib}, "1%,cuda:0=3%", ""},
		{devices.Finding{MemoryBytes: 4 * gib}, "1%", "--memory allows 1% of it, which is 40MB of the 4026MB that are free, a run takes 100MB at least: allow more with --memory"},
		{devices.Finding{MemoryBytes: 16 * gib, FreeBytes: gib}, "", "leave 0MB of its 17179MB, a run takes 100MB at least: end other programs"},
		{devices.Finding{MemoryBytes: 16 * gib, FreeBytes: gib + 99e6}, "8GiB", "leave 99MB of its 17179MB"},
		{devices.Finding{MemoryBytes: 16 * gib, FreeBytes: gib + 100e6}, "8GiB", ""},
		{devices.Finding{MemoryBytes: 16 * gib, Shared: true}, "0.0001%", ""},
	} {
		c.finding.Name = "cuda:0"
		err := enough(c.allowed)(c.finding)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v with %q: %v, want %q", c.finding, c.allowed, err, c.want)
		}
	}
}

// TestAMeasuredDeviceIsHeldToItsMemory: what the profile promises is what the device gives.
func TestAMeasuredDeviceIsHeldToItsMemory(t *testing.T) {
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	set := &devices.Set{Devices: []devices.Device{{Device: device, Finding: devices.Finding{Name: devices.CPU, Shared: true}}}}
	defer set.Close()
	missing := limitMemory(set, "cuda:3=2GB,cpu=200MB")
	if len(missing) != 1 || missing[0] != "cuda:3" {
		t.Errorf("%q are missing, want cuda:3", missing)
	}
	profile, err := measure(set, "cpu=200MB", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if free := profile.Devices[0].MemoryFreeBytes; free != 200e6 || device.MemoryLeft() != free {
		t.Errorf("%d bytes are free, the device has %d", free, device.MemoryLeft())
	}
}

// shared is a device in the host's memory, card one that has its own, as far as it says.
type (
	shared struct {
		kernels.Device
		name string
	}
	card struct{ shared }
)

func (s shared) Name() string { return s.name }

func (card) Distant() bool { return true }

// TestOnlyCardsMayUseTheHostsMemory for what they keep off themselves, and no more than is allowed
// of it; not devices that live in it. They are measured in virtual time.
func TestOnlyCardsMayUseTheHostsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		device, err := emulate.New(null.New(), emulate.Options{Profile: emulate.Profile{
			MatMulFLOPS: 1e12, AttentionFLOPS: 1e12, MemoryBytesPerS: 1e10, CopyBytesPerS: 1e9, MemoryBytes: 1 << 30,
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer device.Close()
		set := &devices.Set{Devices: []devices.Device{
			{Device: card{shared{device, "cuda:0"}}, Finding: devices.Finding{Name: "cuda:0", MemoryBytes: 1 << 30}},
			{Device: card{shared{device, "opencl:0"}}, Finding: devices.Finding{Name: "opencl:0", Shared: true}},
			{Device: shared{device, devices.CPU}, Finding: devices.Finding{Name: devices.CPU, Shared: true}},
		}}
		profile, err := measure(set, "cpu=300MB", t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []int64{100e6, 0, 0} { // three share it
			if d := profile.Devices[i]; d.HostFreeBytes != want || (d.CopyBytesPerS > 0) != (want > 0) {
				t.Errorf("device %d: %+v, want %d bytes of host memory", i, d, want)
			}
		}
		set.Devices[1].Device = card{shared{device, "cuda:0"}}
		if _, err := measure(set, "", t.TempDir()); !errors.Is(err, plan.ErrBadProfile) || !strings.Contains(err.Error(), "--devices") {
			t.Errorf("two devices of one name: %v", err)
		}
		var memory host.Memory
		limitHost(&memory, set, "cpu=300MB")
		if memory.MemoryLeft() != 300e6 {
			t.Errorf("%d bytes may be taken, want those that are allowed", memory.MemoryLeft())
		}
	})
}
