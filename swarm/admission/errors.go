package admission

import (
	"errors"
	"fmt"
	"slices"

	"pnode/planner/plan"
	"pnode/swarm/neterr"
)

// The reasons for which a peer is not admitted. A refusal that crosses the network arrives as one of these,
// wrapped with the other side's detail.
var (
	// ErrNeedsInvite answers a peer that shows no capability.
	ErrNeedsInvite = errors.New("this run needs an invite; ask an owner of it for one (`pnode invite`)")
	// ErrInviteExpired: the invite's time to redeem it is over.
	ErrInviteExpired = errors.New("invite expired; ask for a new one with `pnode invite`")
	// ErrInviteUsed: the invite was redeemed by as many peers as it is for.
	ErrInviteUsed = errors.New("invite is used up; ask for a new one with `pnode invite`")
	// ErrCapabilityExpired: the membership itself is over.
	ErrCapabilityExpired = errors.New("membership expired; ask for a new invite with `pnode invite`")
	// ErrWrongRun: the capability is for another run.
	ErrWrongRun = errors.New("this is another run")
	// ErrSignature: a signature does not hold, or is not by an owner of this run.
	ErrSignature = errors.New("not signed by an owner of this run")
	// ErrBlocked: the peer was removed from the run.
	ErrBlocked = errors.New("this node was removed from the run")
	// ErrMalformed: bytes that are not a message of this version.
	ErrMalformed = errors.New("malformed message")
	// ErrRefused: the member's own admission rule said no.
	ErrRefused = errors.New("refused")
	// ErrInviteRevoked: an owner has ended the invite.
	ErrInviteRevoked = errors.New("invite was revoked; ask for a new one with `pnode invite`")
	// ErrNoMajority: the log, in which each newcomer is noted first, stands still.
	ErrNoMajority = errors.New("the run waits for a majority of its voters, and lets in nobody new meanwhile: try again when they are back")

	// ErrUnknownInvite: the contact of an invite does not answer to it.
	ErrUnknownInvite = errors.New("the node that made it does not answer to this invite any more; ask for a new one with `pnode invite`")

	// ErrNotMember: the peer is not connected and admitted.
	ErrNotMember = errors.New("not an admitted member")
	// ErrNoOwnerKey: only owners can make invites.
	ErrNoOwnerKey = errors.New("this node is no owner of the run, and cannot make invites")
)

// refusals holds the codes on the wire in order: code i+1 stands for refusals[i], 0 for welcome.
var refusals = [...]error{
	ErrRefused, ErrNeedsInvite, ErrInviteExpired, ErrInviteUsed, ErrCapabilityExpired,
	ErrWrongRun, ErrSignature, ErrBlocked, ErrMalformed, ErrInviteRevoked, ErrNoMajority,
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
	return &plain{plan.Clip(detail, maxDetailBytes), reason}
}

// InWords returns why a peer was of no use, for people: a refusal as the peer has put it, that it is no member, or what the
// network's errors mean. It wraps err, whose text is for logs.
func InWords(err error) error {
	switch {
	case err == nil, IsRefusal(err):
		return err
	case errors.Is(err, ErrUnknownInvite):
		return &plain{ErrUnknownInvite.Error(), err}
	case errors.Is(err, ErrNotMember):
		return &plain{ErrNotMember.Error(), err}
	}
	return &plain{"the connection " + neterr.Verb(err), err}
}

// plain is an error with a text of its own in place of that of the error that it wraps.
type plain struct {
	text string
	is   error
}

func (e *plain) Error() string { return e.text }
func (e *plain) Unwrap() error { return e.is }

// Removed returns the refusal of a peer that was removed from the run, in words that it is to be told: "removed from the
// run by desk: it sends nonsense".
func Removed(text string) error { return &plain{"this node was " + text, ErrBlocked} }

// malformed returns an error about bytes from outside.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}
