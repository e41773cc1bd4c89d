package conform

import (
	"errors"

	"pnode/kernels"
)

// selfCases touch every inner loop once with full tiles, edges and more than one block; all but those
// in F16.
var selfCases = append([]Case{
	newCase(kernels.OpMatMul, 65, 70, 260),
	newCase(kernels.OpLayerNormForward, 9, 67),
	newCase(kernels.OpLayerNormBackwardInput, 9, 67),
	newCase(kernels.OpRMSNormForward, 9, 67),
	newCase(kernels.OpRMSNormBackwardInput, 9, 67),
	newCase(kernels.OpRoPE, 9, 4, 3, 20, 70, 2),
	newCase(kernels.OpAttentionForward, 1, 57, 2, 1, 20),
	newCase(kernels.OpAttentionBackward, 1, 57, 2, 1, 20),
	newCase(kernels.OpAttentionCached, 1, 3, 2, 1, 20, 57, 60),
	newCase(kernels.OpGELUForward, 515),
	newCase(kernels.OpGELUBackward, 515),
	newCase(kernels.OpSwiGLUForward, 5, 67),
	newCase(kernels.OpSwiGLUBackward, 5, 67),
	newCase(kernels.OpDropout, 131),
	newCase(kernels.OpCrossEntropy, 7, 131),
	newCase(kernels.OpAdamW, 131),
	newCase(kernels.OpSumSquares, 1003),
	newCase(kernels.OpMatMulInt8, 5, 70, 260),
	newCase(kernels.OpMatMulInt8, 20, 70, 260),
}, selfHalves(false)...)

// selfHalves returns the self-tests on one of the two halves.
func selfHalves(f16 bool) []Case {
	return []Case{
		{Call: newCase(kernels.OpMatMul, 136, 136, 72).Call, Seed: 1, Halved: []int{1, 2}, F16: f16, Aligned: true},
		{Call: newCase(kernels.OpMatMul, 37, 141, 70).Call, Seed: 1, Halved: []int{1, 2}, F16: f16},
		{Call: newCase(kernels.OpAttentionForward, 1, 137, 2, 1, 24).Call, Seed: 1, Halved: []int{0, 2}, F16: f16, Aligned: true},
		{Call: newCase(kernels.OpAttentionBackward, 1, 137, 2, 1, 24).Call, Seed: 1, Halved: []int{2, 3, 4}, F16: f16, Aligned: true},
		{Call: newCase(kernels.OpCast, 131, 0).Call, Seed: 1, Halved: []int{0}, F16: f16},
	}
}

// SelfTest runs a few calls of dev against the reference; the error says which operation is
// wrong. A backend runs it when it starts and leaves out kernels that fail.
func SelfTest(dev kernels.Device) error { return selfTest(dev, selfCases) }

// SelfTestF16 is SelfTest of what reads or writes F16, without which a device is of use as well.
func SelfTestF16(dev kernels.Device) error { return selfTest(dev, selfHalves(true)) }

func selfTest(dev kernels.Device, cases []Case) error {
	q, err := dev.NewQueue()
	if err != nil {
		return err
	}
	for _, c := range cases {
		err := checkForms(dev, q, c)
		if (len(c.Halved) > 0 || kernels.Info(c.Call.Op).Optional) && errors.Is(err, kernels.ErrUnsupported) {
			continue
		}
		if err != nil {
			_ = q.Close() // the first error says more
			return err
		}
	}
	return q.Close()
}

// checkForms is Check, of a product with each factor stored either way.
func checkForms(dev kernels.Device, q kernels.Queue, c Case) error {
	forms := []kernels.Flags{0}
	if c.Call.Op == kernels.OpMatMul {
		forms = []kernels.Flags{0, kernels.TransB, kernels.TransA, kernels.TransA | kernels.TransB | kernels.Accumulate}
	}
	for _, form := range forms {
		c.Call.Flags = form
		if err := Check(dev, q, c); err != nil {
			return err
		}
	}
	return nil
}
