// Package native calls functions of shared libraries that are there only on some machines,
// without cgo: those of GPU drivers.
//
// A function is an address. Call takes integers and pointers only, converted in the call
// itself, and costs about a quarter of a microsecond. Libraries stay open for good, because
// drivers do not unload well.
//
// Only this directory uses purego. A binary with this package is not static on Linux: it needs
// the loader of libc.
package native

import (
	"errors"
	"fmt"

	"github.com/ebitengine/purego"
)

var (
	// ErrNoLibrary says that none of the libraries asked for could be opened.
	ErrNoLibrary = errors.New("native: no such library")
	// ErrNoFunction says that a library lacks a function.
	ErrNoFunction = errors.New("native: no such function")
)

// Open opens the first of the libraries that is there and gives the addresses of functions of
// it. The error wraps ErrNoLibrary or ErrNoFunction and names what is missing.
func Open(libraries, functions []string) (addresses []uintptr, err error) {
	var failures []error
	for _, name := range libraries {
		handle, err := openLibrary(name)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		return find(handle, functions)
	}
	return nil, fmt.Errorf("%w: %w", ErrNoLibrary, errors.Join(failures...))
}

func find(handle uintptr, functions []string) (addresses []uintptr, err error) {
	for _, name := range functions {
		address, err := findFunction(handle, name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoFunction, err)
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// Call calls the function at an address. What pointers among the arguments point to stays alive
// and in its place where they are converted in the call itself.
//
//go:uintptrescapes
func Call(function uintptr, args ...uintptr) uintptr {
	result, _, _ := purego.SyscallN(function, args...)
	return result
}

// Callback gives the address of a Go function that takes and returns integers and pointers: a
// function of a library as far as Call can tell. Its memory is never given back, and there is
// room for 2000.
func Callback(f any) uintptr { return purego.NewCallback(f) }
