package cpu

// The functions of loops_amd64.s.

// multiply4x24 is the micro-kernel of avx2 for matrix products.
//
//go:noescape
func multiply4x24(t *tile)

// multiply6x16 is the micro-kernel for attention.
//
//go:noescape
func multiply6x16(t *tile)

// multiply12x32 is the micro-kernel of avx512.
//
//go:noescape
func multiply12x32(t *tile)

// multiply4x32 is the micro-kernel of avx512 for few rows.
//
//go:noescape
func multiply4x32(t *tile)

// multiplyPack4x24 is multiply4x24 of one tile, whose A it packs.
//
//go:noescape
func multiplyPack4x24(t *tile)

// multiplyPack12x32 is multiply12x32 of one tile, whose A it packs.
//
//go:noescape
func multiplyPack12x32(t *tile)

// peakAVX2 does 12 multiply-adds of 8 floats a round in registers.
//
//go:noescape
func peakAVX2(rounds int)

// peakAVX512 does 12 multiply-adds of 16 floats a round in registers.
//
//go:noescape
func peakAVX512(rounds int)

// peakPairsAVX512 does 12 multiply-adds of 16 pairs of BF16 numbers a round in registers.
//
//go:noescape
func peakPairsAVX512(rounds int)

// copyRows8x4 and the like write dst[i*step+p*unit+j] = src[p*stride+i*unit+j] for
// i < panels, j < unit and p < k, with panels and unit in the name.
//
//go:noescape
func copyRows1x4(dst, src *float32, step, stride, k int)

//go:noescape
func copyRows1x24(dst, src *float32, step, stride, k int)

//go:noescape
func copyRows8x4(dst, src *float32, step, stride, k int)

//go:noescape
func copyRows4x24(dst, src *float32, step, stride, k int)

//go:noescape
func copyRows1x12(dst, src *float32, step, stride, k int)

//go:noescape
func copyRows1x16(dst, src *float32, step, stride, k int)

//go:noescape
func copyRows1x32(dst, src *float32, step, stride, k int)

//go:noescape
func copyRows4x12(dst, src *float32, step, stride, k int)

//go:noescape
func copyRows4x16(dst, src *float32, step, stride, k int)

//go:noescape
func copyRows4x32(dst, src *float32, step, stride, k int)

// transpose8 writes dst[p*dstRow+j] = src[j*srcRow+p] for j < 8 and p < k; p ascends.
//
//go:noescape
func transpose8(dst, src *float32, dstRow, srcRow, k int)

// transpose4 is transpose8 for j < 4, and writes anything for 4 <= j < 8.
//
//go:noescape
func transpose4(dst, src *float32, dstRow, srcRow, k int)

// pairRows4x12 and the like write dst[i*step+p*unit+j] = the pair of src[2*p*stride+i*unit+j] and
// src[(2*p+1)*stride+i*unit+j] for i < panels, j < unit and p < k, with panels and unit in the name.
//
//go:noescape
func pairRows1x12(dst *float32, src *uint16, step, stride, k int)

//go:noescape
func pairRows4x12(dst *float32, src *uint16, step, stride, k int)

//go:noescape
func pairRows1x32(dst *float32, src *uint16, step, stride, k int)

//go:noescape
func pairRows4x32(dst *float32, src *uint16, step, stride, k int)

// direct1x24 and those below are directKernel functions of so many rows and columns: see there.
//
//go:noescape
func direct1x24(out, init, a, b *float32, aStep, stride, k int)

//go:noescape
func direct4x24(out, init, a, b *float32, aStep, stride, k int)

//go:noescape
func directHalves1x24(out, init, a, b *float32, aStep, stride, k int)

//go:noescape
func directHalves4x24(out, init, a, b *float32, aStep, stride, k int)

//go:noescape
func direct1x32(out, init, a, b *float32, aStep, stride, k int)

//go:noescape
func direct8x32(out, init, a, b *float32, aStep, stride, k int)

//go:noescape
func direct4x32(out, init, a, b *float32, aStep, stride, k int)

//go:noescape
func directHalves1x32(out, init, a, b *float32, aStep, stride, k int)

//go:noescape
func directHalves8x32(out, init, a, b *float32, aStep, stride, k int)

//go:noescape
func directHalves4x32(out, init, a, b *float32, aStep, stride, k int)

//go:noescape
func directPairs1x32(out, init, a, b *float32, aStep, stride, k int)

//go:noescape
func directPairs8x32(out, init, a, b *float32, aStep, stride, k int)

//go:noescape
func directPairs4x32(out, init, a, b *float32, aStep, stride, k int)

// multiplyPairs12x32 is the micro-kernel of avx512bf16 for pairs of BF16 numbers.
//
//go:noescape
func multiplyPairs12x32(t *tile)

// multiplyPairs4x32 is multiplyPairs12x32 for few rows.
//
//go:noescape
func multiplyPairs4x32(t *tile)

// multiplyPackPairs12x32 is multiplyPairs12x32 of one tile, whose A it packs.
//
//go:noescape
func multiplyPackPairs12x32(t *tile)

// directInt81x32AVX2 and those below are directKernel functions for int8 weights: see directProduct.
//
//go:noescape
func directInt81x32AVX2(out, init, a, panel *float32, aStep, skip, k int)

//go:noescape
func directInt84x32AVX2(out, init, a, panel *float32, aStep, skip, k int)

//go:noescape
func directInt81x32AVX512(out, init, a, panel *float32, aStep, skip, k int)

//go:noescape
func directInt84x32AVX512(out, init, a, panel *float32, aStep, skip, k int)

//go:noescape
func directInt88x32AVX512(out, init, a, panel *float32, aStep, skip, k int)

// widenInt8AVX2 is a variant's widenInt8.
//
//go:noescape
func widenInt8AVX2(out, panel *float32, step, skip, k int)
