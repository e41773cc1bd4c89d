package cuda

import (
	"testing"

	"pnode/kernels"
	"pnode/kernels/conform"
)

// openCard opens the first card of the machine, or skips the test on one without.
func openCard(t testing.TB) *Device {
	t.Helper()
	dev, err := conform.First(t, List, ErrNoLibrary).Open()
	closing(t, dev, err)
	t.Logf("%s, compute capability %v, driver for CUDA %s", dev.Info.Name, dev.Compute, dev.Driver)
	return dev
}

// TestConformOnACard is the suite on a real card.
func TestConformOnACard(t *testing.T) {
	dev := openCard(t)
	conform.Run(t, dev)
	for _, half := range []kernels.DType{kernels.BF16, kernels.F16} {
		conform.RunLargeScores(t, dev, half, 0.01)
	}
}
