package cpu

import "pnode/kernels"

// Arithmetic keeps every worker busy with multiply-adds in registers, `rounds` times 12 vectors of
// them, and returns the number of floating-point operations: the rate that no kernel can pass. BF16
// asks for those of pairs, where products of BF16 are of pairs; any other type for those of floats.
// It is for measurements.
func (d *Device) Arithmetic(dtype kernels.DType, rounds int) (flops int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pool == nil {
		return 0, errClosed
	}
	peak, lanes := d.v.peak, d.v.peakLanes
	if dtype == kernels.BF16 && d.v.peakPairs != nil {
		peak, lanes = d.v.peakPairs, 2*lanes
	}
	d.pool.run(d.threads, func(*worker, int) { peak(rounds) })
	return int64(2*12*lanes) * int64(rounds) * int64(d.threads), nil
}

// peakSink keeps the compiler from leaving the sums of peakGeneric out.
var peakSink [12]float32

func peakGeneric(rounds int) {
	s := peakSink
	const factor = 0.5
	for range rounds {
		for i := range s {
			s[i] = s[i]*factor + factor
		}
	}
	if s[0] < 0 {
		peakSink = s
	}
}
