package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os/exec"
	"regexp"
	"strings"

	"pnode/kernels/gpu"
)

//go:embed library.cl
var library string

// clang compiles to assembly.
func (t target) clang(clang string) (report, error) {
	cmd := exec.Command(clang, "-x", "cl", "-cl-std=CL1.2", "-cl-no-stdinc", "-cl-mad-enable", "--target=amdgcn-amd-amdhsa", "-mcpu="+t.arch,
		"-nogpulib", "-O3", "-Wall", "-Werror", "-Wno-unused-function", "-S", "-o", "-", "-")
	cmd.Stdin = strings.NewReader(library + gpu.UnitSource(gpu.WithUnit(t.unit)))
	var said bytes.Buffer
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w:\n%s", clang, t.arch, err, said.Bytes())
	}
	return parseAMD(string(text)), nil
}

var (
	matrixLine = regexp.MustCompile(`^\s+v_w?mf?ma_f32_16x16x16_?b?f16`)
	kernelLine = regexp.MustCompile(`^\s+\.amdhsa_kernel (\w+)`)
	amdFields  = fields{
		{regexp.MustCompile(`^\s+\.amdhsa_next_free_vgpr (\d+)`), func(u *usage) *int { return &u.registers }},
		{regexp.MustCompile(`^\s+\.amdhsa_group_segment_fixed_size (\d+)`), func(u *usage) *int { return &u.local }},
		{regexp.MustCompile(`^\s+\.amdhsa_private_segment_fixed_size (\d+)`), func(u *usage) *int { return &u.spilled }},
	}
)

// parseAMD reads assembly: the instructions of a kernel stand before what it takes.
func parseAMD(text string) (r report) {
	instructions := 0
	for line := range strings.Lines(text) {
		if matrixLine.MatchString(line) {
			instructions++
		}
		if m := kernelLine.FindStringSubmatch(line); m != nil {
			r = append(r, usage{kernel: m[1], instructions: instructions})
			instructions = 0
		}
		amdFields.read(r, line)
	}
	return r
}
