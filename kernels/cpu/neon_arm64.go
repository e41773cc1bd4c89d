package cpu

// The functions of neon_arm64.s. Where a function takes slices, all have the length of the
// first one, unless it says otherwise. The assembly and variant say what they compute.

//go:noescape
func multiply8x12(t *tile)

//go:noescape
func peakNEON(rounds int)

//go:noescape
func multiplyPairs8x12(t *tile)

//go:noescape
func multiplySquares8x12(t *tile)

//go:noescape
func squares8(panel *float32, twos int)

//go:noescape
func squares12(panel *float32, twos int)

//go:noescape
func peakPairsNEON(rounds int)

//go:noescape
func pairRows1x8(dst *float32, src *uint16, step, stride, k int)

//go:noescape
func pairRows4x8(dst *float32, src *uint16, step, stride, k int)

//go:noescape
func pairRows1x12(dst *float32, src *uint16, step, stride, k int)

//go:noescape
func pairRows4x12(dst *float32, src *uint16, step, stride, k int)

//go:noescape
func copyRows1x8(dst, src *float32, step, stride, k int)

//go:noescape
func copyRows4x8(dst, src *float32, step, stride, k int)

//go:noescape
func copyRows1x12(dst, src *float32, step, stride, k int)

//go:noescape
func copyRows4x12(dst, src *float32, step, stride, k int)

//go:noescape
func transpose4(dst, src *float32, dstRow, srcRow, k int)

//go:noescape
func addNEON(out, x, y []float32)

//go:noescape
func scaleNEON(x []float32, s float32)

//go:noescape
func axpyNEON(y, x []float32, s float32)

//go:noescape
func timesNEON(y, x []float32, s float32)

//go:noescape
func maxNEON(x []float32) float32

//go:noescape
func sumNEON(x []float32) float32

//go:noescape
func dotNEON(x, y []float32) float32

//go:noescape
func deviationNEON(x []float32, mean float32) float32

//go:noescape
func sumSquaresNEON(x []float32) float64

//go:noescape
func powersNEON(out, x []float32, scale, shift float32) float32

//go:noescape
func geluNEON(out, x []float32)

//go:noescape
func geluGradNEON(dx, dout, x []float32)

//go:noescape
func swigluNEON(out, gate, up []float32)

//go:noescape
func swigluGradNEON(dgate, dup, dout, gate, up []float32)

//go:noescape
func adamWNEON(param, m, v, grad []float32, s *[8]float32)

//go:noescape
func softmaxNEON(x []float32, least float32) (top, sum float32)

//go:noescape
func softmaxGradNEON(p, dp []float32, lse, delta float32)

//go:noescape
func rotateNEON(x, cos, sin []float32, sign float32)

//go:noescape
func weightedNEON(out, weights, rows []float32, stride int)

//go:noescape
func normNEON(out, x, w, b []float32, mean, rstd float32)

//go:noescape
func normSumsNEON(dout, x, w []float32, mean, rstd float32) (plain, weighted float32)

//go:noescape
func normGradNEON(dx, base, dout, x, w []float32, s *[4]float32)

//go:noescape
func normWeightGradNEON(dw, db, dout, x []float32, mean, rstd float32)

//go:noescape
func philoxNEON(words []uint32, keys *[2 * philoxRounds]uint32, c0, c1, c2, c3 uint32)

//go:noescape
func dropNEON(out, x []float32, words []uint32, least uint32, scale float32)

//go:noescape
func widenNEON(out []float32, x []uint16)

//go:noescape
func narrowNEON(out []uint16, x []float32)

//go:noescape
func roundNEON(out []uint16, x []float32, words []uint32)
