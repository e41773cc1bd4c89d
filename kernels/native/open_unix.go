//go:build !windows

package native

import "github.com/ebitengine/purego"

func openLibrary(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func findFunction(handle uintptr, name string) (uintptr, error) { return purego.Dlsym(handle, name) }
