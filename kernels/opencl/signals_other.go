//go:build !linux

package opencl

// guardSignals calls do. No driver here is known to replace signal handlers.
func guardSignals(do func()) { do() }
