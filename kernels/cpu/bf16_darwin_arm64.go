package cpu

import "golang.org/x/sys/unix"

// multipliesBF16 reports whether the processor has FEAT_BF16: an M2 or later.
func multipliesBF16() bool {
	has, err := unix.SysctlUint32("hw.optional.arm.FEAT_BF16")
	return err == nil && has != 0
}
