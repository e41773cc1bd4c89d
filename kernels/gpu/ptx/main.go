// Command ptx compiles the kernels of package gpu ahead of time to PTX, the assembly that
// NVIDIA's drivers take, with clang; and, where NVIDIA's assembler is at hand, assembles it
// for each generation of cards and prints the registers of every kernel.
//
//	go run ./kernels/gpu/ptx -out kernels/cuda/ptx
//	go run ./kernels/gpu/ptx -ptxas /path/to/ptxas -arch sm_60,sm_90
//
// It fails when the PTX needs a function from elsewhere, when it does not assemble, and when a
// kernel that products and attention spend their time in spills registers to memory.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"pnode/kernels/gpu"
)

//go:embed library.cl
var library string

// target is a generation of cards that PTX is compiled for; drivers compile it for newer ones.
type target struct {
	arch    string // the oldest
	version string // of PTX, as clang names it: the oldest with what the kernels use
	gpu.Geometry
}

var targets = []target{
	{"sm_60", "ptx60", gpu.Sides[0]},
	{"sm_75", "ptx65", gpu.TuringUnits},
	{"sm_80", "ptx70", gpu.MatrixUnits},
}

func main() {
	clang := flag.String("clang", "clang-19", "the compiler")
	ptxas := flag.String("ptxas", "", "NVIDIA's assembler; empty to do without")
	arch := flag.String("arch", "sm_60,sm_70,sm_75,sm_80,sm_86,sm_89,sm_90", "what to assemble for")
	out := flag.String("out", "", "the folder to write the PTX to; empty for nowhere")
	flag.Parse()
	if err := run(*clang, *ptxas, strings.Split(*arch, ","), *out, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ptx:", err)
		os.Exit(1)
	}
}

func run(clang, ptxas string, archs []string, out string, w io.Writer) error {
	var failures []error
	for _, t := range targets {
		text, err := t.compile(clang)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s: %d kernels, %d bytes of PTX\n", t.arch, bytes.Count(text, []byte(".visible .entry ")), len(text))
		if out != "" {
			if err := os.WriteFile(filepath.Join(out, t.file()), pack(text), 0o644); err != nil {
				return err
			}
		}
		for _, arch := range archs {
			if ptxas == "" || arch < t.arch {
				continue
			}
			report, err := assemble(ptxas, arch, text)
			if err != nil {
				return err
			}
			report.print(w, arch)
			failures = append(failures, report.check(arch))
		}
	}
	return errors.Join(failures...)
}

// assemble gives what the assembler says of each kernel.
func assemble(ptxas, arch string, text []byte) (report, error) {
	dir, err := os.MkdirTemp("", "ptx")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // nothing depends on it
	file := filepath.Join(dir, "kernels.ptx")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	said, err := exec.Command(ptxas, "-v", "-arch="+arch, "-o", filepath.Join(dir, "kernels.cubin"), file).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w:\n%s", ptxas, arch, err, said)
	}
	return parse(string(said)), nil
}
