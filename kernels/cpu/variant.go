package cpu

import "pnode/kernels"

//go:generate go run ./asm -group loops -out loops_amd64.s
//go:generate go run ./asm -group math -out math_amd64.s
//go:generate go run ./asm/neon -out neon_arm64.s

// variant is the inner loops of one instruction set. All slices of one call have the
// same length unless a comment says otherwise; any length is allowed. Each function
// treats its elements in an order that depends on their number only.
type variant struct {
	name string

	product microKernel // of matrix products
	// pairs is product for BF16 operands, whose elements are pairs: see pairs.go. Its depth and block
	// count these. Without multiply they are widened for product. Its tiles are as large.
	pairs microKernel
	// attentionPairs is attention for pairs.
	attentionPairs microKernel
	// addPair is what pairs makes of a sum, pair for pair in the order of K, to the bit: pairs.go has those that there are.
	addPair   func(sum float32, a, b uint32) float32
	attention microKernel // of the products in attention, which reads A where it is
	// copyA and transposeA pack A of matrix products, with unit product.mr, and pairA that of pairs.
	copyA      packCopy
	transposeA packTranspose
	pairA      packPairs

	// peak does 12 multiply-adds of peakLanes floats a round in registers.
	peak      func(rounds int)
	peakLanes int
	// peakPairs does as many of peakPairLanes BF16 numbers; nil where products have no pairs.
	peakPairs     func(rounds int)
	peakPairLanes int

	max   func(x []float32) float32
	add   func(out, x, y []float32)
	scale func(x []float32, s float32)

	// powers computes out = 2^((x-shift)*scale), for powers of at most 126, and gives the sum.
	powers func(out, x []float32, scale, shift float32) float32

	// softmax finds top, the largest of x and least, and computes x = 2^(x-top) and the sum.
	softmax func(x []float32, least float32) (top, sum float32)
	// softmaxGrad computes p = 2^(p-lse) and dp = p*(dp-delta).
	softmaxGrad func(p, dp []float32, lse, delta float32)
	// softmaxHalves and softmaxGradHalves take the place of these where products are of pairs; elsewhere
	// they may be nil. Powers and gradients are rounded to BF16, numbers below the smallest normal one to zero or to what products take
	// for it. The operands may change. softmaxHalves computes out = 2^(x*scale-top), with top the largest of x*scale and least, and the sum before it is rounded.
	softmaxHalves func(out []uint16, x []float32, scale, least float32) (top, sum float32)
	// softmaxGradHalves computes p = 2^(x*by[0]-by[1])*by[2] and dp = p*(dx-by[3])*by[4], from p before it
	// is rounded.
	softmaxGradHalves func(p, dp []uint16, x, dx []float32, by *[5]float32)
	// weighted adds weights[i] times the row at i*stride of rows to out.
	weighted func(out, weights, rows []float32, stride int)
	// axpy computes y += s*x.
	axpy func(y, x []float32, s float32)
	// timesRows computes rows dst = s[r]*src of cols floats, dstRow and srcRow apart, axpyRows
	// dst += s[r]*src, dotRows out[r] = the product of rows of x and y, which with a stride of 0 are
	// all the same. Slices may be longer than these rows. The loops in assembly of amd64 ask for rows some time ahead.
	timesRows, axpyRows func(dst, src []float32, dstRow, srcRow, cols int, s []float32)
	dotRows             func(out, x, y []float32, xRow, yRow, cols int)

	gelu     func(out, x []float32)
	geluGrad func(dx, dout, x []float32)
	// swiglu computes out = gate*sigmoid(gate)*up.
	swiglu func(out, gate, up []float32)
	// swigluGrad computes the gradients of gate and up; dgate may be gate and dup up.
	swigluGrad func(dgate, dup, dout, gate, up []float32)
	// rotate turns the pairs (x[i], x[i+half]) of each 2*half floats of x by the angles
	// whose cosines and sines are given, half of them; sign -1 turns back.
	rotate func(x, cos, sin []float32, sign float32)
	// narrow and widen convert to and from BF16.
	narrow func(out []uint16, x []float32)
	widen  func(out []float32, x []uint16)
	// widenInt8 converts from int8 weights.
	widenInt8 int8Widen
	// round is narrow by chance, with a word for each element: see kernels.Rounding.
	round func(out []uint16, x []float32, words []uint32)
	// philox writes random words from a block of a stream on; their number is a multiple
	// of 32.
	philox func(words []uint32, r kernels.Random, block uint64)
	// drop computes out = x*scale where the word is at least `least`, else 0.
	drop func(out, x []float32, words []uint32, least uint32, scale float32)
	// adamW's scalars are listed in adamw.go.
	adamW func(param, m, v, grad []float32, s *[8]float32)

	sum        func(x []float32) float32
	sumSquares func(x []float32) float64
	// deviation is the sum of (x-mean)^2.
	deviation func(x []float32, mean float32) float32
	// norm computes out = (x-mean)*rstd*w + b.
	norm func(out, x, w, b []float32, mean, rstd float32)
	// normSums gives the sums of dout*w and of dout*w*(x-mean)*rstd.
	normSums func(dout, x, w []float32, mean, rstd float32) (plain, weighted float32)
	// normGrad computes dx = base + rstd*(dout*w - s[2] - (x-mean)*rstd*s[3]) with mean s[0]
	// and rstd s[1].
	normGrad func(dx, base, dout, x, w []float32, s *[4]float32)
	// normWeightGrad adds dout*(x-mean)*rstd to dw and dout to db.
	normWeightGrad func(dw, db, dout, x []float32, mean, rstd float32)
}

// microKernel computes tiles of mr rows and nr columns.
type microKernel struct {
	mr, nr int
	// depth is the most K of a call. With much of it C is read and written seldom; with little,
	// a panel of B stays in the first cache.
	depth int
	// asks is how many bytes of tile.Next a round of K asks for: lines of 64, as many as its generator
	// was told (nextLines), 0 for none.
	asks int
	// block is how many floats of A and B, packed, a task works on at a time.
	block    int
	multiply func(t *tile) // may change its argument
	// few is multiply for tiles of fewRows rows, which takes less time than one of mr; nil if there is none.
	fewRows int
	few     func(t *tile)
	// multiplyPack is multiply of one tile, whose A it reads where it is and packs beside; nil if
	// there is none.
	multiplyPack func(t *tile)
	// direct multiplies few rows of floats, or of pairs, with columns of B where they lie, and directHalves such of floats with a B of BF16.
	direct, directHalves directKernels
	// directInt8 multiplies few rows of floats with a panel of int8 weights.
	directInt8 directKernels
	// copyB and transposeB pack B, with unit nr; pairB takes the place of copyB for pairs.
	copyB      packCopy
	transposeB packTranspose
	pairB      packPairs
	// arrange puts panels of `unit` rows of A or columns of B and k steps in the order in which multiply reads them; nil where
	// that is the one in which they are packed.
	arrange func(panels []float32, unit, k int)
}

// packCopy writes dst[(i*k+p)*unit+j] = src[p*stride+i*unit+j] for i < panels, p < k and
// j < unit.
type packCopy func(dst, src []float32, stride, k, panels int)

// packTranspose writes dst[p*unit+j] = src[j*stride+p] for p < k and j < unit.
type packTranspose func(dst, src []float32, stride, k int)

// tileRound is how many steps of K micro-kernels take at a time.
const tileRound = 8

const floatBytes = 4

// tile is one call of the micro-kernel: C[mr,nr] = init[nr] + A[mr,K]*B[K,nr], plus the
// old C if Accumulate is not 0, for Count tiles that follow each other down a column. The
// assembly knows the order of the fields.
type tile struct {
	K          int
	A          *float32 // element (i,p) at i*ARow + p*ACol
	ARow, ACol int
	B          *float32 // packed: element (p,j) at p*nr + j
	Init       *float32
	C          *float32 // element (i,j) at i*CRow + j, the next tile mr rows below
	CRow       int
	Accumulate int
	Count      int // at least 1
	AStep      int // from a tile's A to that of the next
	// Next is what will be read later: for every tileRound of K the micro-kernel asks for
	// microKernel.asks bytes of it in the second cache and goes on by NextStep bytes. It may lie
	// anywhere, but asking for what is no memory takes time.
	Next     uintptr
	NextStep int
	// Packed is where multiplyPack writes element (i,p) of A, at p*mr + i. It asks for what comes
	// Ahead bytes after the elements of A that it reads.
	Packed *float32
	Ahead  int
}
