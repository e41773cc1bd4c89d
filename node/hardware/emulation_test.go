package hardware

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"pnode/kernels/cpu"
	"pnode/kernels/devices"
	"pnode/kernels/emulate"
	"pnode/node/config"
)

// quiet logs nothing.
var quiet = slog.New(slog.DiscardHandler)

// TestNoDeviceWithoutItsInstructionSet asks for kernels that no processor has: a node that
// closes what it opened must not find a device.
func TestNoDeviceWithoutItsInstructionSet(t *testing.T) {
	t.Setenv(cpu.VariantEnv, "sse9")
	device, err := Open(t.Context(), Options{Threads: 1, Log: quiet})
	if err == nil || !strings.Contains(err.Error(), cpu.VariantEnv) {
		t.Errorf("error is %v, want the variable that is wrong", err)
	}
	if device != nil {
		t.Errorf("the devices are %v, want none", device)
	}
}

// TestNoDeviceOfABadProfile: neither where the emulation is refused.
func TestNoDeviceOfABadProfile(t *testing.T) {
	device, err := Open(t.Context(), Options{Emulation: &config.Emulation{Device: config.Device{Compute: "none"}}, Log: quiet})
	if !errors.Is(err, emulate.ErrBadProfile) {
		t.Errorf("error is %v, want that of the profile", err)
	}
	if device != nil {
		t.Errorf("the devices are %v, want none", device)
	}
}

// fullCardEnv makes TestPlaysAFullCard a process that looks at drivers.
const fullCardEnv = "PNODE_TEST_FULL_CARD"

// TestPlaysAFullCard finds a card on which other programs leave next to nothing.
func TestPlaysAFullCard(t *testing.T) {
	if os.Getenv(fullCardEnv) == "" {
		t.Skip("nobody looks at drivers")
	}
	card := devices.Finding{Name: "opencl:77", Model: "a card", MemoryBytes: 16 << 30, FreeBytes: 1, Passed: true, Rates: devices.Rates{MatMulFLOPS: 1 << 50}}
	text, err := json.Marshal(map[string]any{"device": card})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(string(text))
}

// TestGoesOnWithoutAFullCard: with the processor, which the card would have made superfluous, and
// which can be measured; an error where nothing else was asked for.
func TestGoesOnWithoutAFullCard(t *testing.T) {
	if !devices.HasDrivers() {
		t.Skip("this program opens no drivers")
	}
	t.Setenv(fullCardEnv, "1")
	t.Setenv(devices.NamesEnv, "")
	log := &strings.Builder{}
	o := Options{
		Dir: t.TempDir(), Threads: 1, Log: slog.New(slog.NewTextHandler(log, nil)),
		Probe: devices.Probe{os.Args[0], "-test.run=^TestPlaysAFullCard$", "--"},
	}
	m, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	set := m.inUse()
	const why = "goes on without opencl:77 (a card): other programs and its driver leave 0MB of its 17179MB"
	if len(set.Devices) != 1 || set.Named(devices.CPU) == nil || !strings.Contains(log.String(), why) {
		t.Errorf("devices %v, want the processor; said %q, want %q", set.Devices, log, why)
	}
	if _, err := m.Measure(); err != nil || len(m.Profile().Devices) != 1 {
		t.Errorf("measured %+v, %v", m.Profile(), err)
	}
	o.Devices = "opencl:77"
	_, err = Open(t.Context(), o)
	if !errors.Is(err, devices.ErrNone) || !strings.Contains(err.Error(), why) {
		t.Errorf("the card alone: %v, want %q", err, why)
	}
}
