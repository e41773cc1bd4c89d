// Command units compiles the kernels on matrix units for cards of AMD, with clang, and of Intel, with
// its compiler ocloc where that is at hand, as the drivers of these cards do; and prints what each
// kernel takes.
//
//	go run ./kernels/gpu/units
//	go run ./kernels/gpu/units -ocloc /path/to/ocloc
//
// It fails when a kernel does not compile, has no instruction of matrix units, or keeps in memory what
// registers have no room for.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"pnode/kernels/gpu"
)

// target is a generation of cards.
type target struct {
	arch string
	unit gpu.Unit
}

var (
	amd   = []target{{"gfx1100", gpu.WMMA11}, {"gfx1200", gpu.WMMA12}, {"gfx942", gpu.MFMA}}
	intel = []target{{"dg2", gpu.DPAS8}, {"pvc", gpu.DPAS16}}
)

func main() {
	clang := flag.String("clang", "clang-19", "the compiler for AMD's cards")
	ocloc := flag.String("ocloc", "", "the compiler for Intel's cards; empty to do without")
	flag.Parse()
	if err := run(*clang, *ocloc, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "units:", err)
		os.Exit(1)
	}
}

func run(clang, ocloc string, w io.Writer) error {
	var failures []error
	tell := func(t target, r report, err error) {
		if err == nil {
			r.print(w, t)
			err = r.check(t)
		}
		failures = append(failures, err)
	}
	for _, t := range amd {
		r, err := t.clang(clang)
		tell(t, r, err)
	}
	if ocloc != "" {
		for _, t := range intel {
			r, err := t.ocloc(ocloc)
			tell(t, r, err)
		}
	}
	return errors.Join(failures...)
}
