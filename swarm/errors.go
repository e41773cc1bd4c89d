package swarm

import (
	"errors"
	"fmt"
	"slices"
)

// What a joining node or a member can be told. Every refusal that crosses the network
// arrives as one of these, wrapped with the other side's detail.
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

	// ErrSelf: the address is this node's own.
	ErrSelf = errors.New("this node's own address")
	// ErrNotMember: the peer is not connected and admitted.
	ErrNotMember = errors.New("not an admitted member")
	// ErrNoOwnerKey: only the run's creator can make invites.
	ErrNoOwnerKey = errors.New("this data folder does not hold the run's owner key; make invites where the run was created")
	// ErrPortInUse: another program listens there.
	ErrPortInUse = errors.New("another program uses this port; stop it, choose another with --listen HOST:PORT, or give port 0 for any free one")
	// ErrTooBig: more bytes than the channel carries in one message.
	ErrTooBig = errors.New("message too big")
	// ErrUnknownTopic: the topic is not on the allow-list.
	ErrUnknownTopic = errors.New("unknown topic")
	// ErrProbeBusy: the other side is measuring a link already; try again later.
	ErrProbeBusy = errors.New("peer is busy with another link probe")
	// ErrNoUDP: a member that is reached over TCP or a relay only has no data plane.
	ErrNoUDP = errors.New("no UDP path to this peer")
)

// refusals is the order of the codes on the wire: code i+1 is refusals[i], 0 is welcome.
var refusals = [...]error{
	ErrRefused, ErrNeedsInvite, ErrInviteExpired, ErrInviteUsed, ErrCapabilityExpired,
	ErrWrongRun, ErrSignature, ErrBlocked, ErrMalformed,
}

// IsRefusal tells whether an error is a verdict, which trying again does not change.
func IsRefusal(err error) bool {
	return slices.ContainsFunc(refusals[:], func(r error) bool { return errors.Is(err, r) })
}

// refusalCode finds the code of err's sentinel; an error without one is ErrRefused.
func refusalCode(err error) byte {
	for i, r := range refusals {
		if errors.Is(err, r) {
			return byte(i + 1)
		}
	}
	return 1
}

// remoteRefusal is a refusal as it was told by a peer.
type remoteRefusal struct {
	reason error
	detail string
}

func (e *remoteRefusal) Error() string { return e.detail }
func (e *remoteRefusal) Unwrap() error { return e.reason }

// refusalFrom makes the error a code and its detail stand for. The detail is the other
// side's text: it is shown only in printable form.
func refusalFrom(code byte, detail string) error {
	reason := ErrRefused
	if int(code) <= len(refusals) && code > 0 {
		reason = refusals[code-1]
	}
	if detail == "" {
		detail = reason.Error()
	}
	return &remoteRefusal{reason: reason, detail: printable(detail)}
}

// printable replaces everything outside printable ASCII.
func printable(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '?'
		}
	}
	return string(b)
}

// plain is an error whose text stands by itself, without that of its sentinel.
type plain struct {
	text string
	is   error
}

func (e *plain) Error() string { return e.text }
func (e *plain) Unwrap() error { return e.is }

// malformed reports what is wrong with bytes from outside.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}
