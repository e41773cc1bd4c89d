package cpu

// Arithmetic keeps every worker busy with multiply-adds in registers, `rounds` times 12
// vectors of them, and gives the number of floating-point operations: the rate that no
// kernel can pass. It is for measurements.
func (d *Device) Arithmetic(rounds int) (flops int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pool == nil {
		return 0, errClosed
	}
	d.pool.run(d.threads, func(*worker, int) { d.v.peak(rounds) })
	return int64(2*12*d.v.peakLanes) * int64(rounds) * int64(d.threads), nil
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
