//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// openFiles returns how many files this process may open at once, ok where that is known. Package os has raised the soft
// limit to the hard one when the process started.
func openFiles() (limit uint64, ok bool) {
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	return uint64(l.Cur), err == nil
}

// ignoreBackgroundReads has reads of a terminal fail while this process is in its background, where they would stop it.
func ignoreBackgroundReads() { signal.Ignore(syscall.SIGTTIN) }
