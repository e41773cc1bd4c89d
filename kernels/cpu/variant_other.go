//go:build !amd64 && !arm64

package cpu

// processorVariants are the variants beside generic that this processor can run.
func processorVariants() []*variant { return nil }
