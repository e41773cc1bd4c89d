package comparison

import (
	"runtime/debug"
	"testing"
)

// TestMain has garbage collected less often: searches make much of it and keep a few megabytes, and a quarter of these tests' time
// went into collecting it.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	m.Run()
}
