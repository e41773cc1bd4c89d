package admission

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The reasons for which a peer is not admitted. A refusal that crosses the network arrives as one of these,
// wrapped with the other side's detail.
var (
	// ErrNeedsInvite answers a peer that shows no capability.
	ErrNeedsInvite = errors.New("this run needs an invite; ask its creator for one (`pnode invite`)")
	// ErrInviteExpired: the invite's time to redeem it is over.
	ErrInviteExpired = errors.New("invite expired; ask for a new one with `pnode invite`")
	// ErrInviteUsed: the invite was redeemed by as many peers as it is for.
	ErrInviteUsed = errors.New("invite is used up; ask for a new one with `pnode invite`")
	// ErrCapabilityExpired: the membership itself is over.
	ErrCapabilityExpired = errors.New("membership expired; ask for a new invite with `pnode invite`")
	// ErrWrongRun: the capability is for another run.
	ErrWrongRun = errors.New("this is another run")
	// ErrSignature: a signature does not hold, or is not by this run's owner.
	ErrSignature = errors.New("not signed by this run's owner")
	// ErrBlocked: the peer was removed from the run.
	ErrBlocked = errors.New("this node was removed from the run")
	// ErrMalformed: bytes that are not a message of this version.
	ErrMalformed = errors.New("malformed message")
	// ErrRefused: the member's own admission rule said no.
	ErrRefused = errors.New("refused")

	// ErrNotMember: the peer is not connected and admitted.
	ErrNotMember = errors.New("not an admitted member")
	// ErrNoOwnerKey: only the run's creator can make invites.
	ErrNoOwnerKey = errors.New("this data folder does not hold the run's owner key; make invites where the run was created")
)

// refusals holds the codes on the wire in order: code i+1 stands for refusals[i], 0 for welcome.
var refusals = [...]error{
	ErrRefused, ErrNeedsInvite, ErrInviteExpired, ErrInviteUsed, ErrCapabilityExpired,
	ErrWrongRun, ErrSignature, ErrBlocked, ErrMalformed,
}

// IsRefusal reports whether an error is a verdict, which trying again does not change.
func IsRefusal(err error) bool {
	return slices.ContainsFunc(refusals[:], func(r error) bool { return errors.Is(err, r) })
}

// refusalFrom returns the error of a code. The detail is the other side's text and is shown in printable form
// only.
func refusalFrom(code byte, detail string) error {
	reason := ErrRefused
	if int(code) <= len(refusals) && code > 0 {
		reason = refusals[code-1]
	}
	if detail == "" {
		detail = reason.Error()
	}
	printable := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, detail)
	return &plain{printable, reason}
}

// plain is an error that wraps a sentinel without repeating its text.
type plain struct {
	text string
	is   error
}

func (e *plain) Error() string { return e.text }
func (e *plain) Unwrap() error { return e.is }

// malformed returns an error about bytes from outside.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}
