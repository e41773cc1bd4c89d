package cpu

// The functions of math_amd64.s. Where a function takes slices, all have the length of
// the first one, unless variant, which says what they compute, says otherwise.

//go:noescape
func addAVX2(out, x, y []float32)

//go:noescape
func scaleAVX2(x []float32, s float32)

//go:noescape
func maxAVX2(x []float32) float32

//go:noescape
func sumAVX2(x []float32) float32

//go:noescape
func deviationAVX2(x []float32, mean float32) float32

//go:noescape
func sumSquaresAVX2(x []float32) float64

//go:noescape
func exp2AVX2(out, x []float32, scale, shift float32) float32

//go:noescape
func softmaxAVX2(x []float32, least float32) (top, sum float32)

//go:noescape
func softmaxGradAVX2(p, dp []float32, lse, delta float32)

//go:noescape
func weightedAVX2(out, weights, rows []float32, stride int)

//go:noescape
func axpyAVX2(y, x []float32, s float32)

//go:noescape
func timesRowsAVX2(dst, src []float32, dstRow, srcRow, cols int, s []float32)

//go:noescape
func axpyRowsAVX2(dst, src []float32, dstRow, srcRow, cols int, s []float32)

//go:noescape
func dotRowsAVX2(out, x, y []float32, xRow, yRow, cols int)

//go:noescape
func geluAVX2(out, x []float32)

//go:noescape
func geluGradAVX2(dx, dout, x []float32)

//go:noescape
func swigluAVX2(out, gate, up []float32)

//go:noescape
func swigluGradAVX2(dgate, dup, dout, gate, up []float32)

//go:noescape
func rotateAVX2(x, cos, sin []float32, sign float32)

//go:noescape
func philoxAVX2(words []uint32, keys *[2 * philoxRounds]uint32, c0, c1, c2, c3 uint32)

//go:noescape
func dropAVX2(out, x []float32, words []uint32, least uint32, scale float32)

//go:noescape
func widenAVX2(out []float32, x []uint16)

//go:noescape
func narrowAVX2(out []uint16, x []float32)

//go:noescape
func roundAVX2(out []uint16, x []float32, words []uint32)

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

//go:noescape
func exp2AVX512(out, x []float32, scale, shift float32) float32

//go:noescape
func softmaxAVX512(x []float32, least float32) (top, sum float32)

//go:noescape
func softmaxGradAVX512(p, dp []float32, lse, delta float32)

//go:noescape
func softmaxHalvesAVX512(out []uint16, x []float32, scale, least float32) (top, sum float32)

//go:noescape
func softmaxGradHalvesAVX512(p, dp []uint16, x, dx []float32, by *[5]float32)

//go:noescape
func widenAVX512(out []float32, x []uint16)

//go:noescape
func narrowAVX512(out []uint16, x []float32)

//go:noescape
func geluAVX512(out, x []float32)

//go:noescape
func geluGradAVX512(dx, dout, x []float32)

//go:noescape
func swigluAVX512(out, gate, up []float32)

//go:noescape
func swigluGradAVX512(dgate, dup, dout, gate, up []float32)
