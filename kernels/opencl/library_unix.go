//go:build !windows

package opencl

import "github.com/ebitengine/purego"

// libraryNames are where OpenCL's loader may be: on Linux and the BSDs, then on macOS.
var libraryNames = []string{"libOpenCL.so.1", "libOpenCL.so", "/System/Library/Frameworks/OpenCL.framework/OpenCL"}

func openLibrary(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func findFunction(handle uintptr, name string) (uintptr, error) { return purego.Dlsym(handle, name) }
