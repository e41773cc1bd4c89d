package node

import (
	"errors"
	"fmt"

	"pnode/swarm"
)

var (
	// ErrBadInvite marks what is neither an invite nor an address.
	ErrBadInvite = errors.New("node: bad invite")
	// ErrRefused marks an invite that gives no right to enter, or not any more.
	ErrRefused = errors.New("node: refused")
)

// marked is an error that is also its mark, which its text does not repeat.
type marked struct {
	error
	mark error
}

func (m marked) Unwrap() []error { return []error{m.error, m.mark} }

// refused marks why an invite cannot be redeemed, and says what to do.
func refused(err error) error {
	if errors.Is(err, swarm.ErrInviteExpired) {
		err = fmt.Errorf("%w; ask for a new one with `pnode invite`", err)
	}
	return marked{err, ErrRefused}
}
