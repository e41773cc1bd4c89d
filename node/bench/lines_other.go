//go:build !linux

package bench

import (
	"fmt"
	"os/exec"
	"time"

	"pnode/swarm/netlab"
)

// averageLine describes a peer's line, the same in both directions.
type averageLine struct {
	bitsPerS float64
	delay    time.Duration
	loss     float64
}

// lines is a network of peers, which only Linux has.
type lines struct{}

func openLines(int, averageLine) (*lines, error) {
	return nil, fmt.Errorf("%w: they are Linux's", netlab.ErrUnavailable)
}

func (*lines) address(int) string         { return "" }
func (*lines) start(int, *exec.Cmd) error { return netlab.ErrUnavailable }
func (*lines) control() string            { return "" }
func (*lines) close()                     {}
