package opencl

import (
	"syscall"
	"testing"
)

// TestSignalsArePutBack changes a handler as a driver would.
func TestSignalsArePutBack(t *testing.T) {
	const ignore = 1 // SIG_IGN
	n := uintptr(syscall.SIGUSR2)
	var before, within, after signalAction
	sigaction(n, nil, &before)
	guardSignals(func() {
		sigaction(n, &signalAction{ignore}, nil)
		sigaction(n, nil, &within)
	})
	sigaction(n, nil, &after)
	if within[0] != ignore {
		t.Fatalf("the handler is %#x, want SIG_IGN", within[0])
	}
	if after != before {
		t.Errorf("the handler is %#x after, %#x before", after, before)
	}
}

// TestDriverLeavesSignals wants Go's own handlers after a device was opened: a nil pointer is a
// panic that can be caught.
func TestDriverLeavesSignals(t *testing.T) {
	openDevice(t)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	var p *Device
	_ = p.Index
}
