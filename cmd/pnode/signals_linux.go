package main

import (
	"os"
	"syscall"
)

// ending are the signals besides Ctrl-C and SIGTERM that announce the end of this process: SIGPWR says that the power fails.
var ending = []os.Signal{syscall.SIGPWR}

// signalName returns what people call a signal.
func signalName(s os.Signal) string {
	if s == syscall.SIGPWR {
		return "SIGPWR: the power fails"
	}
	return "SIGTERM"
}
