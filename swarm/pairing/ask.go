package pairing

import (
	"context"
	"errors"
	"fmt"
	"time"

	corehost "github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/host"
)

const (
	// pollEvery is the time between two questions of a newcomer that waits.
	pollEvery = time.Second
	// lostAfter is how long an owner's node may not answer until the newcomer gives up.
	lostAfter = 20 * time.Second
	// exchangeTime bounds a stream of a newcomer.
	exchangeTime = 5 * time.Second
)

// ErrRefused is wrapped by the error of a newcomer that is not let in.
var ErrRefused = errors.New("not let in")

// Run is a run that an owner's node offers in the local network, by its own word.
type Run struct {
	// At is where the node is, with its peer ID, which it has proved.
	At   peer.AddrInfo
	ID   plan.RunID
	Name string // of the machine
}

// Who asks a node at addresses which run it offers. The error is ErrMalformed for one that answers anything else.
func Who(ctx context.Context, h corehost.Host, at peer.AddrInfo) (Run, error) {
	answer, err := question(ctx, h, at, message{Kind: kindWho})
	if err != nil {
		return Run{}, err
	}
	r := Run{At: at, ID: plan.RunID(answer.Text), Name: plan.Clip(answer.More, maxNameBytes)}
	if answer.Kind != kindAbout {
		return Run{}, malformed("an answer of kind %d", answer.Kind)
	}
	return r, admission.CheckRun(r.ID)
}

// Ask asks the owner's node of a run for an invite, under a name of this machine. show gets the code once both ends have it; Ask then blocks until
// people have decided. The error wraps ErrRefused where they, or the node, say no.
func Ask(ctx context.Context, h corehost.Host, run Run, name string, show func(code string)) (invite string, err error) {
	code, err := pair(ctx, h, run, plan.Clip(name, maxNameBytes))
	if err != nil {
		return "", err
	}
	show(code)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for heard := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		answer, err := question(ctx, h, run.At, message{Kind: kindPoll})
		switch {
		case err != nil && time.Since(heard) > lostAfter:
			return "", fmt.Errorf("%s does not answer any more: %w", run.Name, err)
		case err != nil: // a stranger's connection is ended now and then
			continue
		case answer.Kind == kindInvite:
			return answer.Text, nil
		case answer.Kind != kindWaiting:
			return "", refused(answer)
		}
		heard = time.Now()
	}
}

// pair makes the request, and returns its code.
func pair(ctx context.Context, h corehost.Host, run Run, name string) (code string, err error) {
	t := transcript{Newcomer: h.ID(), Owner: run.At.ID, NewcomerName: name, OwnerName: run.Name, Run: run.ID}
	if t.NewcomerNumber, err = newNumber(); err != nil {
		return "", err
	}
	err = exchange(ctx, h, run.At, func(st network.Stream) error {
		answer, err := ask(st, message{Kind: kindCommit, Number: t.commitment(), Text: name})
		switch {
		case err != nil:
			return err
		case answer.Kind != kindNumber:
			return refused(answer)
		}
		t.OwnerNumber = answer.Number
		answer, err = ask(st, message{Kind: kindReveal, Number: t.NewcomerNumber})
		if err == nil && answer.Kind != kindWaiting {
			err = refused(answer)
		}
		return err
	})
	return t.code(), err
}

// refused returns the error of an answer that is no consent.
func refused(answer message) error {
	if answer.Kind != kindRefused {
		return malformed("an answer of kind %d", answer.Kind)
	}
	return fmt.Errorf("%w: %s", ErrRefused, answer.Text)
}

// question makes one question on a stream of its own.
func question(ctx context.Context, h corehost.Host, at peer.AddrInfo, m message) (answer message, err error) {
	err = exchange(ctx, h, at, func(st network.Stream) (err error) {
		answer, err = ask(st, m)
		return err
	})
	return answer, err
}

// ask sends a message and reads the answer.
func ask(st network.Stream, m message) (message, error) {
	if err := send(st, m); err != nil {
		return message{}, err
	}
	return receive(st)
}

// exchange connects to a node and opens a stream, for as long as talk lasts.
func exchange(ctx context.Context, h corehost.Host, at peer.AddrInfo, talk func(network.Stream) error) error {
	ctx, cancel := context.WithTimeout(ctx, exchangeTime)
	defer cancel()
	connect := func(ctx context.Context) error {
		if h.Network().Connectedness(at.ID) != network.Connected {
			h.Peerstore().ClearAddrs(at.ID) // it has told others too, which may lead round the local network
		}
		return h.Connect(ctx, at)
	}
	if err := host.ConnectAgain(ctx, h.Network(), at.ID, connect); err != nil {
		return err
	}
	st, err := h.NewStream(ctx, at.ID, proto)
	if err != nil {
		return err
	}
	defer st.Close()
	stop := context.AfterFunc(ctx, func() { st.Reset() }) // ends a blocked read too
	defer stop()
	return talk(st)
}
