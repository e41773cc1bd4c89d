package main

import "testing"

// TestCodesOfPairs compares codes with what LLVM's assembler makes of the text beside them.
func TestCodesOfPairs(t *testing.T) {
	var f function
	f.addSquares(0, 1, 2)
	f.addSquares(31, 30, 29)
	f.addPairs(3, 4, 5)
	f.addPairs(30, 0, 31)
	const want = `	WORD    $0x6e42ec20 // bfmmla v0.4s, v1.8h, v2.8h
	WORD    $0x6e5defdf // bfmmla v31.4s, v30.8h, v29.8h
	WORD    $0x6e45fc83 // bfdot v3.4s, v4.8h, v5.8h
	WORD    $0x6e5ffc1e // bfdot v30.4s, v0.8h, v31.8h
`
	if got := f.body.text.String(); got != want {
		t.Errorf("the codes are\n%s", got)
	}
}
