// Command asm generates the assembly of package cpu:
//
//	go run ./kernels/cpu/asm -out kernels/cpu/loops_amd64.s
//
// The declarations are in loops_amd64.go; go vet compares both.
package main

import (
	. "github.com/mmcloughlin/avo/build"
)

func main() {
	multiply("multiply6x16", 6, ymm)
	multiply("multiply12x32", 12, zmm)
	peak("peakAVX2", ymm)
	peak("peakAVX512", zmm)
	for _, unit := range []int{6, 12, 16, 32} {
		copyRows(unit, 1)
		copyRows(unit, groupPanels)
	}
	for _, rows := range []int{4, 6, 8} {
		transpose(rows)
	}
	elementwise()
	reductions()
	nonlinear()
	layerNorm()
	Generate()
}
