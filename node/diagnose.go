package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/admission"
	"pnode/swarm/diagnose"
)

// diagnoseTime bounds the tests after a join that failed.
const diagnoseTime = 10 * time.Second

// listensFor returns where a node listens that is told nothing about it: where the other nodes can reach it, and on
// loopback for a run that is there.
func listensFor(v admission.Invite) string {
	if slices.ContainsFunc(v.Addrs, far) {
		return ":0"
	}
	return "127.0.0.1:0"
}

// Diagnose tests, within 15 s, whether this machine can join by an invite or the address of a member. It makes no folder,
// and does not use the invite. progress, if not nil, hears which tests are under way.
func Diagnose(ctx context.Context, target string, progress func(tests []string)) (diagnose.Report, error) {
	invite, err := parseTarget(target)
	if err != nil {
		return diagnose.Report{}, err
	}
	return swarm.Diagnose(ctx, listensFor(invite), invite, progress)
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

// unreached returns why no contact at addresses answers, and what to do, by the tests of `pnode doctor --net`. cause is
// why the join failed.
func unreached(ctx context.Context, cause error, addrs []string, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, diagnoseTime)
	defer cancel()
	report, err := swarm.Diagnose(ctx, "", admission.Invite{Addrs: addrs}, nil)
	if err != nil {
		return fmt.Errorf("%w: nobody answers at %s: %w", ErrUnreachable, strings.Join(addrs, " or "), err)
	}
	for _, t := range report.Tests {
		log.Info("test of the way to the contact", "test", t.Part, "target", t.Target, "result", t.Result, "says", t.Says)
	}
	if report.Joins { // it answers now, or answers everything but a newcomer
		return fmt.Errorf("%w: the contact answers (%s), and did not let this node in: %w; try again", ErrUnreachable, report.Over, cause)
	}
	why := strings.TrimPrefix(report.Verdict, "this machine cannot join: ")
	return fmt.Errorf("%w: %s: %s; `pnode doctor --net INVITE` shows all tests", ErrUnreachable, why, report.Do)
}

// tellDegraded prints in one line what is in the way of QUIC, where a node reached the contact at addresses without it.
func tellDegraded(ctx context.Context, s *swarm.Swarm, addrs []string, out Output) {
	over, at, ok := s.ReachedOver(addrs)
	if !ok || over == plan.QUIC {
		return
	}
	report, err := swarm.Diagnose(ctx, "", admission.Invite{Addrs: addrs}, nil)
	if err != nil || report.Degraded == "" {
		return
	}
	out.Log.Info("reached the contact", "over", over, "at", at)
	out.Notice(fmt.Sprintf("joined over %s: %s; %s", over, report.Degraded, report.Do))
}
