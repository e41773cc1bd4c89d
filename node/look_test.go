package node

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"pnode/kernels/cpu"
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
