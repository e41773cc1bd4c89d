package netlab

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Owner ends with its labs, as a test does, or a Program.
type Owner interface {
	Helper()
	Cleanup(func())
	// Skipf says why this machine has no labs, and Fatalf what went wrong; neither returns.
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// ErrUnavailable is wrapped by the error of a machine that has no labs.
var ErrUnavailable = errors.New("netlab: no network namespaces here")

// Program owns labs outside of tests. Everything that a lab or its hosts are asked for happens within Try.
type Program struct{ cleanups []func() }

// failure ends a call of Try.
type failure struct{ error }

// Try calls f and returns what a lab could not do in it, after which f has not gone on.
func (p *Program) Try(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// Close removes the labs and ends the processes in them.
func (p *Program) Close() {
	for _, f := range slices.Backward(p.cleanups) {
		f()
	}
	p.cleanups = nil
}

// Helper does nothing: a Program names no lines of source.
func (p *Program) Helper() {}

// Cleanup has Close call f, before what was given earlier.
func (p *Program) Cleanup(f func()) { p.cleanups = append(p.cleanups, f) }

// Skipf ends Try with an error that wraps ErrUnavailable.
func (p *Program) Skipf(format string, args ...any) {
	panic(failure{fmt.Errorf("%w: %s", ErrUnavailable, strings.TrimPrefix(fmt.Sprintf(format, args...), "skipped: "))})
}

// Fatalf ends Try with an error.
func (p *Program) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }
