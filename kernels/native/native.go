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
	"fmt"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
)

// Library is a library that may be there, and what is wanted of it.
type Library struct {
	Files     []string // its names, those for Windows with .dll; the first that can be opened counts
	Functions []string
	Optional  []string // behind those: what is lacking of them is 0
	// Missing is the error, wrapped, where none of the files can be opened; Outdated begins the
	// one where a function is lacking.
	Missing  error
	Outdated string
}

// Open opens the library and gives the addresses of its functions.
func (l Library) Open() (addresses []uintptr, err error) {
	var failures []string
	for _, name := range l.Files {
		if strings.HasSuffix(name, ".dll") != (runtime.GOOS == "windows") {
			continue
		}
		handle, err := openLibrary(name)
		if err != nil {
			if !isMissing(name, err) { // else Missing says all that there is to say
				failures = append(failures, err.Error())
			}
			continue
		}
		for _, name := range l.Functions {
			address, err := findFunction(handle, name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.Outdated, err)
			}
			addresses = append(addresses, address)
		}
		for _, name := range l.Optional {
			address, _ := findFunction(handle, name)
			addresses = append(addresses, address)
		}
		return addresses, nil
	}
	if len(failures) == 0 {
		return nil, l.Missing
	}
	return nil, fmt.Errorf("%w: %s", l.Missing, strings.Join(failures, "; "))
}

// isMissing reports whether a library itself is not there, rather than one that it needs.
func isMissing(name string, err error) bool {
	return strings.HasPrefix(err.Error(), name+": ") && strings.HasSuffix(err.Error(), ": No such file or directory")
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
