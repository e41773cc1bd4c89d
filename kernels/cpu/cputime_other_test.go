//go:build !unix

package cpu

import "time"

var start = time.Now()

// cpuTime is wall time where the process has no clock of its own.
func cpuTime() time.Duration { return time.Since(start) }
