package node

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

// quiet is where a node says nothing.
var quiet = Output{Log: slog.New(slog.DiscardHandler)}

// TestNoDeviceWithoutItsInstructionSet asks for kernels that no processor has: a node that
// closes what it opened must not find a device.
func TestNoDeviceWithoutItsInstructionSet(t *testing.T) {
	t.Setenv(cpu.VariantEnv, "sse9")
	device, err := look{}.devices(t.Context(), config.Config{Threads: 1}, quiet)
	if err == nil || !strings.Contains(err.Error(), cpu.VariantEnv) {
		t.Errorf("error is %v, want the variable that is wrong", err)
	}
	if device != nil {
		t.Errorf("the devices are %v, want none", device)
	}
}

// TestNoDeviceOfABadProfile: neither where the emulation is refused.
func TestNoDeviceOfABadProfile(t *testing.T) {
	device, err := look{&config.Emulation{Device: config.Device{Compute: "none"}}}.devices(t.Context(), config.Config{}, quiet)
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
	out, log := quiet, &strings.Builder{}
	out.Probe = devices.Probe{os.Args[0], "-test.run=^TestPlaysAFullCard$", "--"}
	out.Log = slog.New(slog.NewTextHandler(log, nil))
	set, err := look{}.devices(t.Context(), config.Config{Threads: 1}, out)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	const why = "goes on without opencl:77 (a card): other programs and its driver leave 0MB of its 17179MB"
	if len(set.Devices) != 1 || set.Named(devices.CPU) == nil || !strings.Contains(log.String(), why) {
		t.Errorf("devices %v, want the processor; said %q, want %q", set.Devices, log, why)
	}
	if profile, err := measure(set, "", t.TempDir()); err != nil || len(profile.Devices) != 1 {
		t.Errorf("measured %+v, %v", profile, err)
	}
	_, err = look{}.devices(t.Context(), config.Config{Threads: 1, Devices: "opencl:77"}, out)
	if !errors.Is(err, devices.ErrNone) || !strings.Contains(err.Error(), why) {
		t.Errorf("the card alone: %v, want %q", err, why)
	}
}
