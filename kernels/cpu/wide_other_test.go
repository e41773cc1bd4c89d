//go:build !amd64

package cpu

import "testing"

// imitations are none: every variant of this architecture runs on all its processors.
func imitations(*testing.T) []*variant { return nil }
