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

// TestNoDeviceWithoutItsInstructionSet asks for kernels that no processor has: a node that
// closes what it opened must not find a device.
func TestNoDeviceWithoutItsInstructionSet(t *testing.T) {
	t.Setenv(cpu.VariantEnv, "sse9")
	device, err := look{}.device(1, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), cpu.VariantEnv) {
		t.Errorf("error is %v, want the variable that is wrong", err)
	}
	if device != nil {
		t.Errorf("device is a %T, want nil", device)
	}
}

// TestNoDeviceOfABadProfile: neither where the emulation is refused.
func TestNoDeviceOfABadProfile(t *testing.T) {
	device, err := look{&config.Emulation{Device: config.Device{Compute: "none"}}}.device(1, slog.New(slog.DiscardHandler))
	if !errors.Is(err, emulate.ErrBadProfile) {
		t.Errorf("error is %v, want that of the profile", err)
	}
	if device != nil {
		t.Errorf("device is a %T, want nil", device)
	}
}
