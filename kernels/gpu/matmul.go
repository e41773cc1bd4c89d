package gpu

import (
	"fmt"

	"pnode/kernels"
)

// tileSizes are the rows and columns of a product that a work-item computes, the largest
// first; a work-group computes Side times as many.
var tileSizes = [...]int{8, 4}

// depth is how much of the depth of a product is in local memory at a time.
const depth = 16

// manyTiles is the number of large tiles that keep a device busy: a product with fewer is cut
// into small ones.
const manyTiles = 128

// typeNames are the types of numbers in the names of kernels.
var typeNames = [...]string{typeF32: "f32", typeBF16: "bf16", typeF16: "f16"}

// matMulNames are the kernels by tile size, type of factors, and how a and b are stored; matrixNames and
// unitNames those on NVIDIA's matrix units and on others, for halves.
var matMulNames, matrixNames, unitNames = func() (names [len(tileSizes)][len(typeNames)][2][2]string, matrix, unit [len(typeNames)][2][2]string) {
	for dtype, name := range typeNames {
		for a, left := range []string{"n", "t"} {
			for b, right := range []string{"n", "t"} {
				for i, r := range tileSizes {
					names[i][dtype][a][b] = fmt.Sprintf("matmul_%s_%s%s_%d", name, left, right, r)
				}
				matrix[dtype][a][b] = fmt.Sprintf("matmul_mma_%s_%s%s", name, left, right)
				unit[dtype][a][b] = fmt.Sprintf("matmul_unit_%s_%s%s", name, left, right)
			}
		}
	}
	return names, matrix, unit
}()

// matrixTile is the number of rows and of columns that a work-group computes on matrix units.
const matrixTile = 128

// matMul appends the kernel for a product, over the tiles of its result.
func (p *Plan) matMul(c kernels.Call) {
	out, a, b, bias := c.Args[0], c.Args[1], c.Args[2], c.Args[3]
	m, n, k := c.Dims[0], c.Dims[1], c.Dims[2]
	transA, transB, factors := flag(c, kernels.TransA), flag(c, kernels.TransB), typeOf(a)
	var l *Launch
	switch dtype := a.Buf.DType(); {
	case p.Geometry.Multiplies(dtype):
		l = p.launch2(matrixNames[factors][transA][transB], blocks(n, matrixTile), blocks(m, matrixTile))
	case p.Geometry.OnUnit(dtype):
		l = p.launch(unitNames[factors][transA][transB], blocks(n, matrixTile), blocks(m, matrixTile))
	default:
		size := 0
		if side := tileSizes[0] * p.Geometry.Side; blocks(m, side)*blocks(n, side) < manyTiles {
			size = 1
		}
		tile := tileSizes[size] * p.Geometry.Side
		l = p.launch2(matMulNames[size][factors][transA][transB], blocks(n, tile), blocks(m, tile))
	}
	l.stored(out).memory(a, b, bias).ints(m, n, k, flag(c, kernels.Accumulate))
}
