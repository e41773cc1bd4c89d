package main

import (
	"strings"
	"testing"

	"pnode/kernels/devices"
)

// TestDoctorSaysWhatAutoTakes: bf16 where a device multiplies it at least 1.5 times as fast, and else why not.
func TestDoctorSaysWhatAutoTakes(t *testing.T) {
	for _, c := range []struct {
		name           string
		f32, bf16, f16 int64
		want           string
	}{
		{"cpu", 100e9, 195e9, 0, "auto takes bf16 here: products in bf16 are 1.95 times as fast as in f32"},
		{"cpu", 100e9, 120e9, 0, "auto takes f32 here: products in bf16 are 1.20 times as fast as in f32"},
		{"cpu", 100e9, 0, 0, "auto takes f32 here: this processor uses no instructions for products of bf16"},
		{"opencl:0", 1e12, 0, 4e12, "auto takes f16 here: products in f16 are 4.00 times as fast as in f32"},
		{"opencl:0", 1e12, 0, 0, ""},
	} {
		var b strings.Builder
		d := devices.Diagnosed{Finding: devices.Finding{Name: c.name, Passed: true, Rates: devices.Rates{MatMulFLOPS: c.f32, MatMulBF16FLOPS: c.bf16, MatMulF16FLOPS: c.f16}}, Used: true}
		describe(&b, d)
		if got := storage(d); got != c.want || strings.Contains(b.String(), "  storage    "+c.want+"\n") != (c.want != "") {
			t.Errorf("%s at %d, %d and %d: %q, want %q, in\n%s", c.name, c.f32, c.bf16, c.f16, got, c.want, b.String())
		}
	}
}
