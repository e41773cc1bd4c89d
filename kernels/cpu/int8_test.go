package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pnode/kernels"
	"pnode/kernels/quant"
)

// int8Weights puts weights [rows,cols] on a device, as int8 and as the numbers that these stand for.
func int8Weights(t *testing.T, dev *Device, rows, cols int) (words, wide kernels.View) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, uint64(rows*cols)))
	x, all := make([]float32, rows*cols), make([]int32, kernels.MatrixWords(rows, cols))
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	kernels.PackInt8(all, x, cols)
	for r := range rows {
		quant.UnpackRow(x[r*cols:(r+1)*cols], kernels.Int32Bytes(all), r)
	}
	buf, err := dev.Alloc(kernels.I32, len(all))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(buf.Free)
	copy(ints(kernels.Whole(buf)), all)
	return kernels.Whole(buf), upload(t, dev, x)
}

// TestInt8HasTheBitsOfItsNumbers multiplies with int8 weights and with the float32 numbers that they stand for, in all ways that there are for
// few and many rows, with blocks of K that begin within a group, and on several threads.
func TestInt8HasTheBitsOfItsNumbers(t *testing.T) {
	for _, v := range candidates() {
		for _, threads := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/threads=%d", v.name, threads), func(t *testing.T) {
				t.Setenv(VariantEnv, v.name)
				dev := newDevice(t, Options{Threads: threads})
				for _, s := range [][2]int{{1, 1}, {33, 5}, {100, 64}, {64, 200}, {90, 1000}, {300, 770}} {
					n, k := s[0], s[1]
					words, wide := int8Weights(t, dev, n, k)
					bias := upload(t, dev, ramp(n, 5))
					for _, m := range []int{1, 2, 3, 4, 7, 8, 12, 13, 16, 17, 60, 150} {
						a := upload(t, dev, ramp(m*k, 7))
						got := download(t, dev, m*n, func(out kernels.View) kernels.Call { return kernels.MatMulInt8(out, a, words, bias, m, n, k) })
						want := download(t, dev, m*n, func(out kernels.View) kernels.Call {
							return kernels.MatMul(out, a, wide, bias, m, n, k, kernels.TransB)
						})
						for i := range want {
							if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
								t.Fatalf("M %d, N %d, K %d: element %d is %v, want %v", m, n, k, i, got[i], want[i])
							}
						}
					}
				}
			})
		}
	}
}
