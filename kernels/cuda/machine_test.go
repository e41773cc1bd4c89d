package cuda

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"pnode/kernels/gpu"
	"pnode/kernels/opencl"
)

// plain is a machine with memory and without kernels.
type plain struct{ blocks [][]byte }

func (p *plain) Name() string { return "plain" }

func (p *plain) Alloc(bytes int) (gpu.Memory, error) {
	p.blocks = append(p.blocks, make([]byte, bytes))
	return gpu.Memory(len(p.blocks)), nil
}

func (p *plain) Free(m gpu.Memory) error {
	p.blocks[m-1] = nil
	return nil
}

func (p *plain) NewStream() (gpu.Stream, error) { return p, nil }
func (p *plain) Close() error                   { return nil }
func (p *plain) Prepare([]gpu.Launch) error     { return nil }
func (p *plain) Execute([]gpu.Launch) error     { return nil }
func (p *plain) Sync() error                    { return nil }

// The fake has marks of its own.
func (p *plain) Record(m gpu.Mark) (gpu.Mark, error)              { return m, nil }
func (p *plain) Await(gpu.Mark) error                             { return nil }
func (p *plain) Reach(gpu.Mark) error                             { return nil }
func (p *plain) Between(_, _ gpu.Mark) (d time.Duration, ok bool) { return 0, false }
func (p *plain) Drop(gpu.Mark) error                              { return nil }

func (p *plain) Peek(to []byte, from gpu.Memory) error { return p.Read(to, from, 0) }

func (p *plain) Write(to gpu.Memory, at int, from []byte) error {
	copy(p.blocks[to-1][at:], from)
	return nil
}

func (p *plain) Read(to []byte, from gpu.Memory, at int) error {
	copy(to, p.blocks[from-1][at:])
	return nil
}

// machines has what openclMachine opened, by geometry: a program is built once for all tests.
var machines = map[gpu.Geometry]gpu.Driver{}

func TestMain(m *testing.M) {
	code := m.Run()
	for g, machine := range machines {
		if err := machine.Close(); err != nil {
			fmt.Fprintf(os.Stderr, "machine of %+v: %v\n", g, err)
			code = 1
		}
	}
	os.Exit(code)
}

// openclMachine is a machine that has kernels of the same source, built by OpenCL for the same
// work-groups; the test is skipped where there is none.
func openclMachine(t *testing.T, g gpu.Geometry) gpu.Driver {
	t.Helper()
	if machine, ok := machines[g]; ok {
		return machine
	}
	list, err := opencl.List()
	if errors.Is(err, opencl.ErrNoLibrary) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Skip("OpenCL has no devices here")
	}
	machine, err := list[0].Drive(g)
	if err != nil {
		t.Fatal(err)
	}
	machines[g] = machine
	return machine
}
