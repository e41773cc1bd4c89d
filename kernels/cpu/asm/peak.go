package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// peakChains is how many sums peak keeps: more than the latency of a multiply-add times
// the number of units that do it.
const peakChains = 12

// peak emits a loop of nothing but multiply-adds in registers, of floats or of pairs of BF16 numbers.
func peak(name string, kind vectorKind, pairs bool) {
	begin(name, "func(rounds int)", "does 12 vector multiply-adds a round, which depend on nothing but the one a round before.")
	rounds := Load(Param("rounds"), GP64())
	var sums []reg.VecVirtual
	for range peakChains + 1 {
		v := kind.make()
		VXORPS(v.AsY(), v.AsY(), v.AsY()) // clears all of the register
		sums = append(sums, v)
	}
	factor := sums[peakChains]
	Label("round")
	for _, v := range sums[:peakChains] {
		if pairs {
			addPairs(factor, factor, v)
		} else {
			VFMADD231PS(factor, factor, v)
		}
	}
	DECQ(rounds)
	JNZ(LabelRef("round"))
	end()
}
