package node

import (
	"strings"
	"testing"

	"pnode/kernels/cpu"
)

// TestNoDeviceWithoutItsInstructionSet asks for kernels that no processor has: a node that
// closes what it opened must not find a device.
func TestNoDeviceWithoutItsInstructionSet(t *testing.T) {
	t.Setenv(cpu.VariantEnv, "sse9")
	device, err := look{}.device(1)
	if err == nil || !strings.Contains(err.Error(), cpu.VariantEnv) {
		t.Errorf("error is %v, want the variable that is wrong", err)
	}
	if device != nil {
		t.Errorf("device is a %T, want nil", device)
	}
}
