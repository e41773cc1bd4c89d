package main

import (
	"slices"
	"strings"
	"testing"

	"pnode/kernels/gpu"
)

const assembly = `
matmul_unit_nn:                         ; @matmul_unit_nn
	v_wmma_f32_16x16x16_bf16 v[104:111], v[64:71], v[72:79], v[104:111]
	v_mfma_f32_16x16x16_bf16 a[0:3], v[2:3], v[4:5], a[0:3]
	v_mfma_f32_16x16x16bf16_1k a[0:3], v[2:3], v[4:5], a[0:3]
	.amdhsa_kernel matmul_unit_nn
		.amdhsa_group_segment_fixed_size 20480
		.amdhsa_private_segment_fixed_size 16
		.amdhsa_next_free_vgpr 151
	.amdhsa_kernel unit_parts
		.amdhsa_next_free_vgpr 25
`

const description = `kernels:
  - name:            matmul_unit_nt
    execution_env:
      grf_count:       128
      has_dpas:        true
      slm_size:        20480
    payload_arguments:
      - arg_type:        local_size
        size:            12
    per_thread_memory_buffers:
      - type:            scratch
        usage:           spill_fill_space
        size:            1024
  - name:            unit_parts
    execution_env:
      grf_count:       128
kernels_misc_info:
  - name:            matmul_unit_nt
    args_info:
      - index:           0
        name:            out
`

func TestReports(t *testing.T) {
	for _, c := range []struct {
		got, want report
	}{
		{parseAMD(assembly), report{{"matmul_unit_nn", 151, 20480, 16, 3}, {"unit_parts", 25, 0, 0, 0}}},
		{parseIntel(description), report{{"matmul_unit_nt", 128, 20480, 1024, 1}, {"unit_parts", 128, 0, 0, 0}}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("read %v, want %v", c.got, c.want)
		}
		if err := c.got.check(amd[0]); err == nil || !strings.Contains(err.Error(), "spills") {
			t.Errorf("a report with spills: %v", err)
		}
	}
	good := slices.Repeat(report{{kernel: "matmul", instructions: 1}}, 8)
	if err := good.check(amd[0]); err != nil {
		t.Error(err)
	}
	if good[1:].check(amd[0]) == nil {
		t.Error("a report without one of the kernels passes")
	}
	good[2].instructions = 0
	if good.check(amd[0]) == nil {
		t.Error("a report of a product without matrix units passes")
	}
}

// TestKnownSpills: what is allowed is of kernels that there are.
func TestKnownSpills(t *testing.T) {
	for u, kernels := range spills {
		for name := range kernels {
			if !strings.Contains(gpu.UnitSource(gpu.WithUnit(u)), name) {
				t.Errorf("%v has no kernel %s", u, name)
			}
		}
	}
}
