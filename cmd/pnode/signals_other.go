//go:build !linux

package main

import "os"

// ending are the signals besides Ctrl-C and SIGTERM that announce the end of this process: none here.
var ending []os.Signal

// signalName returns what people call a signal.
func signalName(os.Signal) string { return "SIGTERM" }
