//go:build !unix

package mux

import "time"

// processorTime is not known here.
func processorTime() time.Duration { return 0 }
