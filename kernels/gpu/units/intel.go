package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"pnode/kernels/gpu"
)

// ocloc compiles to the file that Intel's drivers load.
func (t target) ocloc(ocloc string) (r report, err error) {
	dir, err := os.MkdirTemp("", "units")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	source := filepath.Join(dir, "kernels.cl")
	if err := os.WriteFile(source, []byte(gpu.UnitSource(gpu.WithUnit(t.unit))), 0o600); err != nil {
		return nil, err
	}
	said, err := exec.Command(ocloc, "compile", "-file", source, "-device", t.arch, "--format", "zebin", "-internal_options", "-allow-zebin",
		"-options", "-cl-std=CL1.2 -cl-mad-enable", "-output", "kernels", "-output_no_suffix", "-out_dir", dir).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w:\n%s", ocloc, t.arch, err, said)
	}
	file, err := elf.Open(filepath.Join(dir, "kernels"))
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", ocloc, t.arch, err)
	}
	defer file.Close()
	section := file.Section(".ze_info")
	if section == nil {
		return nil, fmt.Errorf("%s: %s: the file does not describe its kernels", ocloc, t.arch)
	}
	info, err := section.Data()
	return parseIntel(string(info)), err
}

var (
	nameLine    = regexp.MustCompile(`^\s+- name:\s+(\w+)`)
	scratchLine = regexp.MustCompile(`^\s+- type:\s+scratch`)
	intelFields = fields{
		{regexp.MustCompile(`^\s+grf_count:\s+(\d+)`), func(u *usage) *int { return &u.registers }},
		{regexp.MustCompile(`^\s+slm_size:\s+(\d+)`), func(u *usage) *int { return &u.local }},
	}
	scratchFields = fields{{regexp.MustCompile(`^\s+size:\s+(\d+)`), func(u *usage) *int { return &u.spilled }}}
)

// parseIntel reads the description of kernels, which reports whether there are instructions of matrix
// units, not how many.
func parseIntel(text string) (r report) {
	kernels, _, _ := strings.Cut(text, "kernels_misc_info:")
	inScratch := false
	for line := range strings.Lines(kernels) {
		if m := nameLine.FindStringSubmatch(line); m != nil {
			r = append(r, usage{kernel: m[1]})
		}
		if strings.HasPrefix(strings.TrimSpace(line), "- ") {
			inScratch = scratchLine.MatchString(line)
		}
		if len(r) > 0 && strings.Contains(line, "has_dpas:") && strings.Contains(line, "true") {
			r[len(r)-1].instructions = 1
		}
		intelFields.read(r, line)
		if inScratch {
			scratchFields.read(r, line)
		}
	}
	return r
}
