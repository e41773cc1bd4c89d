package kernels

import (
	"errors"
	"fmt"
)

// Element counts of the attention ops; Dims are B, T, H, K, D.
func attentionQKV(c Call) int {
	return c.Dims[0] * c.Dims[1] * (c.Dims[2] + 2*c.Dims[3]) * c.Dims[4]
}

var (
	attentionOut = dim(0, 1, 2, 4)
	attentionLSE = dim(0, 1, 2)
)

// attentionFLOPs counts `products` causal products of 2*D operations for each of the
// T(T+1)/2 pairs of positions.
func attentionFLOPs(products int64) func(Dims) int64 {
	return func(d Dims) int64 {
		b, t, h, dim := int64(d[0]), int64(d[1]), int64(d[2]), int64(d[4])
		return products * b * h * dim * t * (t + 1)
	}
}

func checkAttention(c Call) error {
	if c.Dims[2]%c.Dims[3] != 0 {
		return errors.New("the heads H are no multiple of the key-value heads K")
	}
	return nil
}

// Indices of From and Queries in the Dims of a part; before them come B, T, H, K, D.
const (
	partFrom    = 5
	partQueries = 6
)

func partEnd(c Call) int { return c.Dims[partFrom] + c.Dims[partQueries] }

// ofPart are operands of which some positions alone are moved.
func ofPart(o Operand, positions func(Call) int) Operand {
	return sparse(o, func(c Call) int { return o.count(c) / c.Dims[1] * positions(c) })
}

// attentionPartFLOPs is attentionFLOPs for the pairs of the part's queries.
func attentionPartFLOPs(products int64) func(Dims) int64 {
	return func(d Dims) int64 {
		from, n := int64(d[partFrom]), int64(d[partQueries])
		return products * int64(d[0]) * int64(d[2]) * int64(d[4]) * n * (2*from + n + 1)
	}
}

func checkAttentionPart(c Call) error {
	if c.Dims[partQueries] == 0 {
		return errors.New("there are no queries")
	}
	if end := partEnd(c); end > c.Dims[1] {
		return fmt.Errorf("the queries end at %d of %d positions", end, c.Dims[1])
	}
	return checkAttention(c)
}

// Indices of Past and Max in the Dims of AttentionCached; before them come B, T, H, K, D.
const (
	cachePast = 5
	cacheMax  = 6
)

// attentionCacheUsed counts the positions up to the last query.
func attentionCacheUsed(c Call) int {
	return 2 * c.Dims[0] * (c.Dims[cachePast] + c.Dims[1]) * c.Dims[3] * c.Dims[4]
}

// attentionCachedFLOPs counts two products for each pair of a query and a key up to it.
func attentionCachedFLOPs(d Dims) int64 {
	t, past := int64(d[1]), int64(d[cachePast])
	return 2 * int64(d[0]) * int64(d[2]) * int64(d[4]) * (t*(t+1) + 2*t*past)
}

func checkAttentionCached(c Call) error {
	if end := c.Dims[cachePast] + c.Dims[1]; end > c.Dims[cacheMax] {
		return fmt.Errorf("the cache has room for %d positions, want %d", c.Dims[cacheMax], end)
	}
	return checkAttention(c)
}

// ropeTable counts the rows of the tables up to the last position; Dims are N, T, H, D, W
// and the first position.
func ropeTable(c Call) int { return (c.Dims[5] + c.Dims[1]) * c.Dims[3] / 2 }

func checkRoPE(c Call) error {
	heads, d, width := c.Dims[2], c.Dims[3], c.Dims[4]
	if d%2 != 0 {
		return fmt.Errorf("a head has %d channels, want an even number", d)
	}
	if heads*d > width {
		return fmt.Errorf("%d heads of %d channels do not fit a row of %d", heads, d, width)
	}
	return nil
}

var attentionTable = map[Op]OpInfo{
	OpRoPE: {
		Name: "rope", Class: ClassElementwise, Dims: "NTHDWp", Flags: Inverse, tolerance: 1e-6, check: checkRoPE,
		Operands: []Operand{sparse(inOut("x", dim(0, 4)), dim(0, 2, 3)), longer(in("cos", ropeTable)), longer(in("sin", ropeTable))},
		flops:    func(d Dims) int64 { return 3 * int64(d[0]) * int64(d[2]) * int64(d[3]) },
	},
	OpAttentionForward: {
		Name: "attention-forward", Class: ClassAttention, Dims: "BTHKD", tolerance: 1e-5, check: checkAttention,
		Operands: []Operand{alike(out("out", attentionOut)), out("lse", attentionLSE), alike(in("qkv", attentionQKV)), optional(index("starts", dim(0, 1)))},
		flops:    attentionFLOPs(2), // QK', PV
	},
	OpAttentionBackward: {
		Name: "attention-backward", Class: ClassAttention, Dims: "BTHKD", tolerance: 2e-5, check: checkAttention,
		Operands: []Operand{halvable(rounded(out("dqkv", attentionQKV))), scratch("delta", attentionLSE), alike(in("dout", attentionOut)), alike(in("qkv", attentionQKV)), alike(in("out", attentionOut)), in("lse", attentionLSE), optional(index("starts", dim(0, 1)))},
		flops:    attentionFLOPs(5), // QK', dO V', P'dO, dS'Q, dS K
	},
	OpAttentionForwardPart: {
		Name: "attention-forward-part", Class: ClassAttention, Dims: "BTHKDpq", tolerance: 1e-5, check: checkAttentionPart,
		Operands: []Operand{alike(ofPart(inOut("out", attentionOut), dim(partQueries))), ofPart(inOut("lse", attentionLSE), dim(partQueries)), alike(ofPart(in("qkv", attentionQKV), partEnd)), optional(ofPart(index("starts", dim(0, 1)), dim(partQueries)))},
		flops:    attentionPartFLOPs(2),
	},
	OpAttentionBackwardPart: {
		Name: "attention-backward-part", Class: ClassAttention, Dims: "BTHKDpq", Flags: Accumulate, tolerance: 2e-5, check: checkAttentionPart,
		Operands: []Operand{rounded(ofPart(inOut("dqkv", attentionQKV), partEnd)), scratch("delta", attentionLSE), alike(ofPart(in("dout", attentionOut), dim(partQueries))), alike(ofPart(in("qkv", attentionQKV), partEnd)), alike(ofPart(in("out", attentionOut), dim(partQueries))), ofPart(in("lse", attentionLSE), dim(partQueries)), optional(ofPart(index("starts", dim(0, 1)), dim(partQueries)))},
		flops:    attentionPartFLOPs(5),
	},
	OpAttentionCached: {
		Name: "attention-cached", Class: ClassAttention, Dims: "BTHKDpM", tolerance: 1e-5, check: checkAttentionCached,
		Operands: []Operand{out("out", attentionOut), sparse(inOut("cache", twice(dim(0, cacheMax, 3, 4))), attentionCacheUsed), in("qkv", attentionQKV), optional(index("starts", dim(0, 1)))},
		flops:    attentionCachedFLOPs,
	},
}
