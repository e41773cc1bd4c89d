// Command asm generates the amd64 assembly of package cpu (asm/neon that for arm64):
//
//	go run ./kernels/cpu/asm -group loops -out kernels/cpu/loops_amd64.s
//	go run ./kernels/cpu/asm -group math -out kernels/cpu/math_amd64.s
//
// The declarations are in files of the same names; go vet compares both.
package main

import (
	"flag"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	group := flag.String("group", "loops", "what to generate: loops (of the matrix product) or math")
	flag.Parse()
	switch *group {
	case "loops":
		for _, packs := range []bool{false, true} {
			micro{rows: 4, vectors: 3, kind: ymm, ask: askFirst, nextLines: 1, packs: packs}.multiply()
			micro{rows: 12, vectors: 2, kind: zmm, ask: askLast, nextLines: 2, packs: packs}.multiply()
			micro{rows: 12, vectors: 2, kind: zmm, ask: askLast, nextLines: 2, packs: packs, pairs: true}.multiply()
		}
		micro{rows: 6, vectors: 2, kind: ymm, ask: askFirst, nextLines: 1}.multiply()
		for _, pairs := range []bool{false, true} {
			micro{rows: 4, vectors: 2, kind: zmm, ask: askFirst, nextLines: 2, pairs: pairs}.multiply()
		}
		peak("peakAVX2", ymm, false)
		peak("peakAVX512", zmm, false)
		peak("peakPairsAVX512", zmm, true)
		for _, unit := range []int{4, 12, 16, 24, 32} {
			copyRows(unit, 1)
			copyRows(unit, groupPanels(unit))
		}
		for _, unit := range []int{12, 32} {
			pairRows(unit, 1)
			pairRows(unit, groupPanels(unit))
		}
		for _, rows := range []int{4, 8} {
			transpose(rows)
		}
		for _, of := range []element{ofFloats, ofHalves} {
			direct{rows: 1, columns: 24, vectors: 3, kind: ymm, of: of}.multiply()
			direct{rows: 4, columns: 24, vectors: 1, kind: ymm, of: of}.multiply()
		}
		for _, of := range []element{ofFloats, ofHalves, ofPairs} {
			direct{rows: 1, columns: 32, vectors: 2, kind: zmm, of: of}.multiply()
			direct{rows: 4, columns: 32, vectors: 2, kind: zmm, of: of}.multiply()
			direct{rows: 8, columns: 32, vectors: 2, kind: zmm, of: of}.multiply()
		}
		int8Direct{rows: 1, vectors: 4, kind: ymm}.multiply()
		int8Direct{rows: 4, vectors: 2, kind: ymm}.multiply()
		for _, rows := range []int{1, 4, 8} {
			int8Direct{rows: rows, vectors: 2, kind: zmm}.multiply()
		}
		widenInt8()
	case "math":
		for _, emit := range []func(){
			elementwise, maximum, sums, sumSquares,
			nonlinear,
			norm, normSums, normGrad, normWeightGrad,
			axpy, rotate, timesRows, dotRows, weighted,
			philox, drop, casts, wideCasts,
		} {
			emit()
		}
	}
	Generate()
}
