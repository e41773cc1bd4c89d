package main

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// usage is a kernel's share of a card: 32-bit registers of each work-item, bytes of local
// memory of a group, and bytes that did not fit into registers.
type usage struct {
	kernel                     string
	registers, shared, spilled int
}

// report is the usage of each kernel, by name.
type report []usage

var (
	entryLine    = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	spillLine    = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores`)
	registerLine = regexp.MustCompile(`Used (\d+) registers`)
	sharedLine   = regexp.MustCompile(`(\d+) bytes smem`)
)

// parse reads what ptxas -v prints: for each kernel its name, its stack, its registers.
func parse(said string) (r report) {
	for line := range strings.Lines(said) {
		if m := entryLine.FindStringSubmatch(line); m != nil {
			r = append(r, usage{kernel: m[1]})
			continue
		}
		if len(r) == 0 {
			continue
		}
		last := &r[len(r)-1]
		set(&last.spilled, spillLine, line)
		set(&last.registers, registerLine, line)
		set(&last.shared, sharedLine, line)
	}
	slices.SortFunc(r, func(a, b usage) int { return strings.Compare(a.kernel, b.kernel) })
	return r
}

func set(to *int, pattern *regexp.Regexp, line string) {
	if m := pattern.FindStringSubmatch(line); m != nil {
		*to, _ = strconv.Atoi(m[1]) // the pattern has digits only
	}
}

func (r report) print(w io.Writer, arch string) {
	fmt.Fprintf(w, "%s: registers, shared bytes, bytes on the stack\n", arch)
	for _, u := range r {
		fmt.Fprintf(w, "  %-32s %4d %6d %4d\n", u.kernel, u.registers, u.shared, u.spilled)
	}
}

// check refuses spills where they cost most: in products and in attention.
func (r report) check(arch string) error {
	var failures []error
	for _, u := range r {
		hot := strings.HasPrefix(u.kernel, "matmul") || strings.HasPrefix(u.kernel, "attention")
		if hot && u.spilled > 0 {
			failures = append(failures, fmt.Errorf("%s: %s has %d bytes on the stack, want 0", arch, u.kernel, u.spilled))
		}
	}
	if len(r) == 0 {
		failures = append(failures, fmt.Errorf("%s: the assembler reports no kernels", arch))
	}
	return errors.Join(failures...)
}
