//go:build !amd64

package cpu

// usableVariants lists the variants of this processor, the best one last.
func usableVariants() []*variant { return []*variant{generic()} }
