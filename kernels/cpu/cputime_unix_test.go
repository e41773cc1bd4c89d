//go:build unix

package cpu

import (
	"syscall"
	"time"
)

// cpuTime is the processor time that the process has used: unlike wall time it does not
// count what other processes take.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
