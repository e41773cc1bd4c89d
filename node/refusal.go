package node

import (
	"errors"
)

var (
	// ErrBadInvite marks what is neither an invite nor an address.
	ErrBadInvite = errors.New("node: bad invite")
	// ErrOtherRun marks an invite or address that leads to another run than the folder's.
	ErrOtherRun = errors.New("node: another run")
	// ErrRefused marks an invite that gives no right to enter, or not any more.
	ErrRefused = errors.New("node: refused")
)

// marked is an error that is also its mark, which its text does not repeat.
type marked struct {
	error
	mark error
}

func (m marked) Unwrap() []error { return []error{m.error, m.mark} }

// refused marks why an invite cannot be redeemed, or a member is not let in.
func refused(err error) error { return marked{err, ErrRefused} }
