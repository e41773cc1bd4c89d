package cuda

import (
	"strings"
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/gpu"
	"pnode/pipeline/model/parity"
)

func openCPU() (kernels.Device, error) { return cpu.New(cpu.Options{Threads: 1}) }

// TestTrainsLikeTheCPU trains whole models through the driver's interface, as a card with matrix
// units, with the kernels on an OpenCL device.
func TestTrainsLikeTheCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("every instruction of matrix units takes hundreds of others here")
	}
	f := newFake(t, openclMachine(t, gpu.MatrixUnits), 1)
	f.compute = 80
	parity.Run(t, openFake(t, 0), openCPU, parity.Factors)
	for _, name := range []string{"matmul", "attention"} {
		onMatrixUnits, all := 0, 0
		for _, l := range f.launches {
			if strings.HasPrefix(l.Kernel, name) {
				all++
			}
			if strings.HasPrefix(l.Kernel, name+"_mma") {
				onMatrixUnits++
			}
		}
		if onMatrixUnits == 0 || onMatrixUnits == all {
			t.Errorf("%d of %d launches of %s were on matrix units", onMatrixUnits, all, name)
		}
	}
}

// TestTrainsOnACard is the same on a real card.
func TestTrainsOnACard(t *testing.T) {
	dev, rounding := openCard(t), parity.Stored
	if dev.Geometry().Matrix != gpu.NoMatrix {
		rounding = parity.Factors
	}
	parity.Run(t, dev, openCPU, rounding)
}
