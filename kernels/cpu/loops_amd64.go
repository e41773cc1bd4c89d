package cpu

//go:generate go run ./asm -out loops_amd64.s

// The functions of loops_amd64.s. Where a function takes slices, all have the length of
// the first one.

// multiply6x16 is the micro-kernel of avx2.
//
//go:noescape
func multiply6x16(t *tile)

// multiply12x32 is the micro-kernel of avx512.
//
//go:noescape
func multiply12x32(t *tile)

// copyRows6 and the like write dst[p*unit+j] = src[p*stride+j] for j < unit and p < k.
//
//go:noescape
func copyRows6(dst, src *float32, stride, k int)

//go:noescape
func copyRows12(dst, src *float32, stride, k int)

//go:noescape
func copyRows16(dst, src *float32, stride, k int)

//go:noescape
func copyRows32(dst, src *float32, stride, k int)

// transpose8 writes dst[p*dstRow+j] = src[j*srcRow+p] for j < 8 and p < k, a multiple
// of 8.
//
//go:noescape
func transpose8(dst, src *float32, dstRow, srcRow, k int)

//go:noescape
func addAVX2(out, x, y []float32)

//go:noescape
func scaleAVX2(x []float32, s float32)

//go:noescape
func maxAVX2(x []float32) float32

//go:noescape
func sumAVX2(x []float32) float32

//go:noescape
func dotAVX2(x, y []float32) float32

//go:noescape
func deviationAVX2(x []float32, mean float32) float32

//go:noescape
func sumSquaresAVX2(x []float32) float64

//go:noescape
func expAVX2(out, x []float32, scale, shift float32) float32

//go:noescape
func softmaxGradAVX2(dx, p []float32, delta, scale float32)

//go:noescape
func geluAVX2(out, x []float32)

//go:noescape
func geluGradAVX2(dx, dout, x []float32)

//go:noescape
func adamWAVX2(param, m, v, grad []float32, s *[8]float32)

//go:noescape
func normAVX2(out, x, w, b []float32, mean, rstd float32)

//go:noescape
func normSumsAVX2(dout, x, w []float32, mean, rstd float32) (plain, weighted float32)

//go:noescape
func normGradAVX2(dx, base, dout, x, w []float32, s *[4]float32)

//go:noescape
func normWeightGradAVX2(dw, db, dout, x []float32, mean, rstd float32)
