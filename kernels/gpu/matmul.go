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

// matMulNames are the kernels by tile size, storage type, and how a and b are stored.
var matMulNames = func() (names [len(tileSizes)][2][2][2]string) {
	for i, r := range tileSizes {
		for half, dtype := range []string{"f32", "bf16"} {
			for a, left := range []string{"n", "t"} {
				for b, right := range []string{"n", "t"} {
					names[i][half][a][b] = fmt.Sprintf("matmul_%s_%s%s_%d", dtype, left, right, r)
				}
			}
		}
	}
	return names
}()

// matrixNames are the kernels on NVIDIA's matrix units, for bf16, by how a and b are stored.
var matrixNames = [2][2]string{{"matmul_mma_nn", "matmul_mma_nt"}, {"matmul_mma_tn", "matmul_mma_tt"}}

// matrixTile is the number of rows and of columns that a work-group computes on matrix units.
const matrixTile = 128

func (p *Plan) matMul(c kernels.Call) {
	out, a, b, bias := c.Args[0], c.Args[1], c.Args[2], c.Args[3]
	m, n, k := c.Dims[0], c.Dims[1], c.Dims[2]
	p.matMulLaunch(c).stored(out).memory(a, b, bias).ints(m, n, k, flag(c, kernels.Accumulate))
}

// matMulLaunch appends the kernel for a product, over the tiles of its result.
func (p *Plan) matMulLaunch(c kernels.Call) *Launch {
	m, n := c.Dims[0], c.Dims[1]
	transA, transB, half := flag(c, kernels.TransA), flag(c, kernels.TransB), 0
	if c.Args[1].Buf.DType() == kernels.BF16 {
		half = 1
		switch {
		case p.Geometry.Matrix:
			return p.launch2(matrixNames[transA][transB], blocks(n, matrixTile), blocks(m, matrixTile))
		case p.Geometry.Unit != NoUnit:
			return p.launch(unitNames[transA][transB], blocks(n, matrixTile), blocks(m, matrixTile))
		}
	}
	size := 0
	if side := tileSizes[0] * p.Geometry.Side; blocks(m, side)*blocks(n, side) < manyTiles {
		size = 1
	}
	tile := tileSizes[size] * p.Geometry.Side
	return p.launch2(matMulNames[size][half][transA][transB], blocks(n, tile), blocks(m, tile))
}
