package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"pnode/kernels/gpu"
)

// usage is a kernel's share of a card: registers of each work-item (of Intel's: of a thread), bytes
// of local memory of a group, bytes in memory for what did not fit into registers; and how many
// instructions of matrix units it has.
type usage struct {
	kernel                                  string
	registers, local, spilled, instructions int
}

// report is the usage of each kernel.
type report []usage

// fields are lines with a number and where that goes.
type fields []struct {
	pattern *regexp.Regexp
	to      func(*usage) *int
}

// read takes a line's number for the last kernel.
func (f fields) read(r report, line string) {
	for _, field := range f {
		if m := field.pattern.FindStringSubmatch(line); m != nil && len(r) > 0 {
			*field.to(&r[len(r)-1]), _ = strconv.Atoi(m[1]) // the pattern has digits only
		}
	}
}

func (r report) print(w io.Writer, t target) {
	fmt.Fprintf(w, "%s, %v: registers, bytes of local memory, bytes spilled, matrix instructions\n", t.arch, t.unit)
	for _, u := range r {
		fmt.Fprintf(w, "  %-20s %4d %6d %4d %4d\n", u.kernel, u.registers, u.local, u.spilled, u.instructions)
	}
}

// spills has the known spills: with both matrices stored across, a sub-group of 16 keeps the
// addresses of 16 loads, and a compiler of 2022 puts some of them aside before the loop.
var spills = map[gpu.Unit]map[string]int{gpu.DPAS16: {"matmul_unit_bf16_tn": 2048, "matmul_unit_f16_tn": 2048}}

// check wants matrix instructions and no spills in products.
func (r report) check(t target) error {
	var failures []error
	products := 0
	for _, u := range r {
		if !strings.HasPrefix(u.kernel, "matmul") {
			continue
		}
		products++
		if most := spills[t.unit][u.kernel]; u.spilled > most {
			failures = append(failures, fmt.Errorf("%s: %s spills %d bytes, want at most %d", t.arch, u.kernel, u.spilled, most))
		}
		if u.instructions == 0 {
			failures = append(failures, fmt.Errorf("%s: %s has no instruction of matrix units", t.arch, u.kernel))
		}
	}
	if products != 2*4 {
		failures = append(failures, fmt.Errorf("%s: the compiler made %d kernels for products, want 4 of each half", t.arch, products))
	}
	return errors.Join(failures...)
}
