package opencl

import (
	"syscall"
	"unsafe"
)

// signalAction is the kernel's struct sigaction, kept as it is.
type signalAction [8]uint64

// lastSignal is the last signal before those that libc and the Go runtime keep for themselves.
const lastSignal = 31

// guardSignals calls do and puts back the signal handlers that it changed: drivers and the
// compilers in them install their own, with which a nil pointer in Go would end the process
// and an interrupt would not reach os/signal.
func guardSignals(do func()) {
	var before [lastSignal + 1]signalAction
	for n := uintptr(1); n <= lastSignal; n++ {
		sigaction(n, nil, &before[n])
	}
	defer func() {
		for n := uintptr(1); n <= lastSignal; n++ {
			var after signalAction
			if sigaction(n, nil, &after); after != before[n] {
				sigaction(n, &before[n], nil)
			}
		}
	}()
	do()
}

// sigaction reads or changes a handler. Signals that have none (SIGKILL) stay as they are.
func sigaction(n uintptr, set, old *signalAction) {
	const maskBytes = 8
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), maskBytes, 0, 0)
}
