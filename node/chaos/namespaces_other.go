//go:build !linux

package chaos

import (
	"fmt"

	"pnode/swarm/netlab"
)

// openNamespaces returns an error: they are Linux's.
func openNamespaces(int, Line) (network, error) {
	return nil, fmt.Errorf("%w: they are Linux's", netlab.ErrUnavailable)
}
