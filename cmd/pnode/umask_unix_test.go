//go:build unix

package main

import (
	"syscall"
	"testing"
)

// usualUmask lets others read what this process makes, as most systems do, until the test ends.
func usualUmask(t *testing.T) {
	t.Helper()
	before := syscall.Umask(0o022)
	t.Cleanup(func() { syscall.Umask(before) })
}
