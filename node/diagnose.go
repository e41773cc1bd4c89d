package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/admission"
	"pnode/swarm/diagnose"
)

// diagnoseTime bounds the tests after a join that failed.
const diagnoseTime = 10 * time.Second

// Diagnose tests, within 15 s, whether this machine can join by an invite or the address of a member. It makes no folder,
// and does not use the invite. progress, if not nil, hears which tests are under way.
func Diagnose(ctx context.Context, target string, progress func(tests []string)) (diagnose.Report, error) {
	invite, err := parseTarget(target)
	if err != nil {
		return diagnose.Report{}, err
	}
	return swarm.Diagnose(ctx, invite, progress)
}

// CannotJoin returns the error of a report for the program's exit code; nil where this machine can join.
func CannotJoin(r diagnose.Report) error {
	switch {
	case r.Joins:
		return nil
	case r.Cause == diagnose.Invite:
		return marked{errors.New("the contact does not take this invite"), ErrRefused}
	}
	return marked{fmt.Errorf("no way to the contact (%s)", r.Cause), ErrUnreachable}
}

// contactError returns why the first contact at addresses was of no use, and what to do. Unless a contact has said why, it
// makes the tests of `pnode doctor --net`.
func contactError(ctx context.Context, err error, addrs []string, log *slog.Logger) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled): // interrupted, not out of time
		return ErrInterrupted
	case admission.IsRefusal(err):
		return refusedError(err)
	}
	log.Info("first contact", "cause", err)
	tests, cancel := context.WithTimeout(ctx, diagnoseTime)
	defer cancel()
	report, failed := swarm.Diagnose(tests, admission.Invite{Addrs: addrs}, nil)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", admission.InWords(err), ctx.Err())
	case failed != nil:
		return fmt.Errorf("%w: nobody answers at %s: %w", ErrUnreachable, strings.Join(addrs, " or "), failed)
	}
	for _, t := range report.Tests {
		log.Info("test of the way to the contact", "test", t.Part, "target", t.Target, "result", t.Result, "says", t.Says)
	}
	switch why := report.Obstacle(); {
	case why != "":
		return fmt.Errorf("%w: %s; what to do: %s; `pnode doctor --net INVITE` shows all tests", ErrUnreachable, why, report.Do)
	case errors.Is(err, admission.ErrUnknownInvite):
		return refusedError(err)
	}
	return fmt.Errorf("%w: the contact answers over %s, and did not let this node in: %w; try again", ErrUnreachable, report.Over, admission.InWords(err))
}

// refusedError returns the error of who is not let in by the answer of a contact, or by the invite itself: what is wrong with the invite, or with
// this machine's clock, and what to do.
func refusedError(answer error) error {
	report, ok := diagnose.NotLetIn(answer)
	if !ok {
		return marked{admission.InWords(answer), ErrRefused}
	}
	return marked{marked{fmt.Errorf("%w: %s; what to do: %s", ErrRefused, report.Obstacle(), report.Do), answer}, ErrRefused}
}

// tellWay prints in one line over what a node reached the contact at addresses, and why, unless that is QUIC.
func tellWay(ctx context.Context, s *swarm.Swarm, addrs []string, out Output) {
	over, at, ok := s.ReachedOver(addrs)
	if !ok || over == plan.QUIC {
		return
	}
	report, err := swarm.Diagnose(ctx, admission.Invite{Addrs: addrs}, nil)
	if err != nil {
		return
	}
	out.Log.Info("reached the contact", "over", over, "at", at)
	if line := joinedOver(over, report); line != "" {
		out.Notice(line)
	}
}

// joinedOver returns that line, empty where the tests found nothing in the way.
func joinedOver(over plan.Transport, r diagnose.Report) string {
	switch {
	case over == plan.Relay && r.Over == plan.Relay:
		return "joined through a relay: " + strings.TrimPrefix(r.Verdict, "this machine can join: ")
	case over == plan.Relay:
		return "joined through a relay: the contact did not answer directly; data goes past the relay where that works, else through it"
	case r.Degraded == "":
		return ""
	}
	return fmt.Sprintf("joined over %s: %s; %s", over, r.Degraded, r.Do)
}
