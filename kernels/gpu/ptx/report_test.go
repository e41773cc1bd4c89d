package main

import (
	"strings"
	"testing"
)

const said = `ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'matmul_f32_nn_8' for 'sm_60'
ptxas info    : Function properties for matmul_f32_nn_8
    48 bytes stack frame, 44 bytes spill stores, 40 bytes spill loads
ptxas info    : Used 110 registers, 16896 bytes smem, 408 bytes cmem[0]
ptxas info    : Compiling entry function 'add' for 'sm_60'
ptxas info    : Function properties for add
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 22 registers, 376 bytes cmem[0]
`

func TestReport(t *testing.T) {
	r := parse(said)
	want := report{{"add", 22, 0, 8}, {"matmul_f32_nn_8", 110, 16896, 48}}
	if len(r) != 2 || r[0] != want[0] || r[1] != want[1] {
		t.Fatalf("read %v, want %v", r, want)
	}
	err := r.check("sm_60")
	if err == nil || !strings.Contains(err.Error(), "matmul_f32_nn_8 has 48 bytes") || strings.Contains(err.Error(), "add") {
		t.Errorf("spills: %v", err)
	}
	if report(nil).check("sm_60") == nil {
		t.Error("a report of nothing passes")
	}
}
