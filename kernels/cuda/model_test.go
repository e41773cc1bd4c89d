package cuda

import (
	"runtime"
	"strings"
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/gpu"
	"pnode/pipeline/model/parity"
)

// openCPU opens the processor with kernels that round no factors of attention.
func openCPU() (kernels.Device, error) {
	return cpu.New(cpu.Options{Threads: 1, Kind: runtime.GOARCH + "/generic"})
}

// TestTrainsLikeTheCPU trains whole models of halves through the driver's interface, as a card with matrix
// units, with the kernels on an OpenCL device. Those of float32 have package opencl's kernels.
func TestTrainsLikeTheCPU(t *testing.T) {
	if testing.Short() {
		t.Skip("every instruction of matrix units takes hundreds of others here")
	}
	f := newFake(t, openclMachine(t, gpu.MatrixUnits), 1)
	f.compute = 80
	parity.RunHalves(t, openFake(t, 0), openCPU, parity.Factors)
	products, attentions := 0, 0
	for _, l := range f.launches {
		switch {
		case strings.HasPrefix(l.Kernel, "matmul_mma"):
			products++
		case strings.HasPrefix(l.Kernel, "matmul"):
			t.Fatalf("%s is launched for halves", l.Kernel)
		case strings.HasPrefix(l.Kernel, "attention_mma"):
			attentions++
		}
	}
	if products == 0 || attentions == 0 {
		t.Errorf("%d products and %d attentions were on matrix units", products, attentions)
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
