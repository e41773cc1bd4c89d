//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"
)

// lines passes what is written on.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

func TestFirstInterruptCancelsSecondEnds(t *testing.T) {
	stderr, exited, killed := make(lines, 1), make(chan int, 1), make(chan struct{}, 1)
	i := &interrupts{exit: func(code int) { exited <- code }}
	ctx, stop := i.watch(t.Context(), stderr)
	defer stop()
	i.beforeExit(func() { killed <- struct{}{} })
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if line := <-stderr; !strings.Contains(line, "again") {
		t.Errorf("said %q", line)
	}
	if len(exited) != 0 {
		t.Fatal("ended at the first interrupt")
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := <-exited; code != exitInterrupted {
		t.Errorf("exit code %d", code)
	}
	<-killed
}
