package cpu

import (
	"sync/atomic"
	"unsafe"

	"pnode/kernels"
)

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
		peak, lanes = d.v.peakPairs, d.v.peakPairLanes
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

// lineWords are the words of a line of the caches.
const lineWords = 8

// Read has all workers read an operand of whole lines of 64 bytes once, and nothing else: the time that no kernel can pass which reads as
// much. It is for measurements.
func (d *Device) Read(v kernels.View) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pool == nil {
		return errClosed
	}
	if err := d.owns(v); err != nil {
		return err
	}
	lines := unsafe.Slice((*[lineWords]uint64)(unsafe.Pointer(unsafe.SliceData(floats(v)))), v.Len*floatBytes/64)
	const most = 1 << 12 // of a task: 256 KiB
	d.pool.run(blocks(len(lines), most), func(_ *worker, task int) {
		sum := uint64(0)
		for i := task * most; i < min(len(lines), (task+1)*most); i++ {
			l := &lines[i]
			sum |= (l[0] | l[1]) | (l[2] | l[3]) | (l[4] | l[5]) | (l[6] | l[7])
		}
		if sum == 0 { // keeps the compiler from leaving the loads out
			readSink.Add(1)
		}
	})
	return nil
}

// readSink counts tasks of Read with zeros alone.
var readSink atomic.Int64
