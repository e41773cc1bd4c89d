//go:build !linux && !darwin

package cpu

// multipliesBF16 is false where the system was never asked whether the processor has FEAT_BF16.
func multipliesBF16() bool { return false }
