package diagnose

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/version"
)

// Judge returns the report of tests: whether this machine can join, over what, and which part is in the way.
func Judge(tests []Test) Report {
	r := Report{Tests: tests}
	switch {
	case r.judgeRefusal():
	case r.judgeWays():
	default:
		r.judgeFailure()
	}
	return r
}

// judgeRefusal fills in the verdict for an invite that its contact does not take, and reports whether that is so.
func (r *Report) judgeRefusal() bool {
	t, ok := first(r.Tests, func(t Test) bool { return t.Part == Invite && t.Result == Fails })
	if !ok {
		return false
	}
	r.Cause, r.Do = Invite, t.Do
	if t.Finding == ClockAhead || t.Finding == ClockBehind {
		r.Cause = Clock
	}
	r.Verdict = cannotJoin + blamed(r.Cause, []Test{t})
	return true
}

// cannotJoin begins the verdict of whoever cannot.
const cannotJoin = "this machine cannot join: "

// Obstacle returns what is in the way of a machine that cannot join, with the test that shows it; empty for one that can.
func (r Report) Obstacle() string {
	why, cannot := strings.CutPrefix(r.Verdict, cannotJoin)
	if !cannot {
		return ""
	}
	return why
}

// NotLetIn returns the report on what a contact, or the invite itself, has answered to whoever came with the invite. ok is false for an answer that
// is about neither the invite nor the clock, and says by itself what to do.
func NotLetIn(answer error) (r Report, ok bool) {
	for _, other := range []error{admission.ErrNeedsInvite, admission.ErrBlocked, admission.ErrNoMajority, version.Err} {
		if errors.Is(answer, other) {
			return Report{}, false
		}
	}
	if !admission.IsRefusal(answer) && !errors.Is(answer, admission.ErrUnknownInvite) {
		return Report{}, false
	}
	t := explainInvite(Claimed{Err: answer}, time.Time{})
	t.Part, t.Did = Invite, showInvite
	return Judge([]Test{t}), true
}

// blamed returns what tests did and found, after the part that is to blame unless they are of that part.
func blamed(cause Part, tests []Test) string {
	if cause == Clock {
		return "clock: " + sentence(tests)
	}
	return sentence(tests)
}

// way is a transport with the part that tests it.
type way struct {
	part Part
	over plan.Transport
	word string
}

// ways lists the transports, the better first.
var ways = []way{
	{UDP, plan.QUIC, "UDP"}, {TCP, plan.TCP, "TCP"}, {WebSocket, plan.WebSocket, "WebSocket over TLS"},
}

// judgeWays fills in the verdict where a transport works, and reports whether one does.
func (r *Report) judgeWays() bool {
	for i, way := range ways {
		works, ok := first(r.Tests, func(t Test) bool { return t.Part == way.part && t.Result == OK })
		if !ok {
			continue
		}
		r.Joins, r.Over = true, way.over
		r.judgeBetter(ways[:i])
		r.Verdict = fmt.Sprintf("this machine can join: %s to %s works: data will go over %s", way.word, works.Target, way.over)
		if r.Degraded != "" {
			r.Verdict = fmt.Sprintf("this machine can join: %s, %s works: data will go over %s", r.Degraded, way.word, way.over)
		}
		if relay, ok := first(r.Tests, func(t Test) bool { return t.Part == Relay }); ok && strings.Contains(relay.Target, works.Target) {
			r.Over = plan.Relay
			reached := fmt.Sprintf("%s to the relay at %s works", way.word, works.Target)
			if r.Degraded != "" {
				reached = r.Degraded + ", " + reached
			}
			r.Verdict = fmt.Sprintf("this machine can join: %s; data will go past it where the NATs let that be, else through it", reached)
		}
		if t, ok := first(r.Tests, func(t Test) bool { return t.Part == Clock && t.Result == Fails }); ok {
			r.Verdict += "; but " + t.Says
			if r.Cause == "" {
				r.Cause, r.Do = Clock, t.Do
			}
		}
		return true
	}
	return false
}

// judgeBetter says what is in the way of transports that are better than one that works.
func (r *Report) judgeBetter(better []way) {
	var degraded []string
	blame := func(t Test, text string) {
		degraded = append(degraded, text)
		if r.Cause == "" {
			r.Cause, r.Do = t.Part, t.Do
		}
	}
	for _, b := range better {
		if t, ok := r.failing(b.part); ok {
			blame(t, fmt.Sprintf("%s to %s %s", b.word, t.Target, short(t.Finding)))
		}
	}
	for _, part := range []Part{DNS, Route} {
		if t, ok := r.failing(part); ok && len(better) > 0 && len(degraded) == 0 {
			blame(t, t.Says)
		}
	}
	r.Degraded = strings.Join(degraded, ", ")
}

// short returns a finding as the verb of a sentence about a transport.
func short(f Finding) string {
	switch f {
	case Silent:
		return "gets no answer"
	case Refused:
		return "is refused"
	case NoRoute:
		return "has no route"
	case Unreachable:
		return "is unreachable"
	case Denied:
		return "is not allowed by this machine"
	case Exhausted:
		return "finds this machine without room for a socket"
	case Cut:
		return "is cut"
	case Closed:
		return "is closed by the other end"
	case TLS:
		return "fails in the TLS handshake"
	case OtherNode:
		return "reaches another node"
	case Foreign:
		return "reaches something else"
	case Busy:
		return "finds no place"
	case GivenUp:
		return "was not tested to the end"
	}
	return "fails"
}

// failing returns the most telling of a part's tests that fail.
func (r *Report) failing(part Part) (Test, bool) {
	var found Test
	for _, t := range r.Tests {
		if t.Part != part || t.Result != Fails {
			continue
		}
		if found.Result == "" || t.Finding.rank() < found.Finding.rank() {
			found = t
		}
	}
	return found, found.Result != ""
}

// judgeFailure fills in the verdict where no transport works: the part that explains most comes first.
func (r *Report) judgeFailure() {
	behindRelay := ""
	if _, ok := r.failing(Relay); ok {
		behindRelay = "the relay to the contact is not reached: "
	}
	say := func(cause Part, tried []Test, do string) {
		if r.Cause = cause; behindRelay != "" {
			r.Cause = Relay
		}
		r.Do = do
		r.Verdict = cannotJoin + behindRelay + blamed(cause, tried)
	}
	var tried []Test
	for _, part := range []Part{UDP, TCP, WebSocket} {
		t, ok := r.failing(part)
		switch {
		case !ok:
			continue
		case t.Finding == ClockBehind || t.Finding == ClockAhead:
			say(Clock, []Test{t}, t.Do)
			return
		case t.Finding == OtherNode || t.Finding == Busy:
			say(part, []Test{t}, t.Do)
			return
		}
		if part != WebSocket || len(tried) == 0 || tried[len(tried)-1].Finding != t.Finding {
			tried = append(tried, t)
		}
	}
	proxy := func(result Result) bool {
		_, ok := first(r.Tests, func(t Test) bool { return t.Part == Proxy && t.Result == result })
		return ok
	}
	hint := ""
	if proxy(NotNeeded) {
		hint = "; where only a proxy leads out, name it in HTTPS_PROXY"
	}
	quiet := !slices.ContainsFunc(tried, func(t Test) bool { return t.Finding != Silent })
	refused := !slices.ContainsFunc(tried, func(t Test) bool { return t.Finding != Refused })
	switch p, proxyFails := r.failing(Proxy); {
	case proxyFails && !proxy(OK):
		say(Proxy, append(tried, p), p.Do)
	case len(tried) > 0 && quiet:
		last := tried[len(tried)-1].Part
		say(last, tried, "see that the machine there is on and its node runs; open UDP and TCP to that port there and on the way"+hint)
	case len(tried) > 0 && refused:
		say(tried[0].Part, tried, tried[0].Do)
	case len(tried) > 0:
		last := tried[len(tried)-1]
		say(last.Part, tried, last.Do)
	default:
		for _, part := range []Part{Route, DNS, Relay} {
			if t, ok := r.failing(part); ok {
				say(part, []Test{t}, t.Do+hint)
				return
			}
		}
		r.Verdict = cannotJoin + "invite: it names no address that could be tried"
		r.Cause, r.Do = Invite, "ask for a new one (`pnode invite`)"
	}
}

// sentence returns what tests did and found.
func sentence(tests []Test) string {
	var found []string
	for i := 0; i < len(tests); i++ {
		t := tests[i]
		if t.Part == Invite { // the contact's answer speaks for itself
			found = append(found, t.Says)
			continue
		}
		did, over := t.Did, word(t.Part)
		if i+1 < len(tests) && tests[i+1].Says == t.Says && tests[i+1].Target == t.Target {
			i++
			did, over = did+"; "+tests[i].Did, over+" and "+word(tests[i].Part)
		}
		if t.Target != "" {
			over += " " + t.Target
		}
		found = append(found, fmt.Sprintf("%s (%s): %s", over, did, t.Says))
	}
	return strings.Join(found, "; ")
}

// word returns a part as it stands in a sentence.
func word(p Part) string {
	switch p {
	case DNS, UDP, TCP:
		return strings.ToUpper(string(p))
	case WebSocket:
		return "WebSocket"
	case Proxy:
		return "the proxy"
	case Route:
		return "the route"
	case Relay:
		return "the relay"
	}
	return string(p)
}

func first(tests []Test, is func(Test) bool) (Test, bool) {
	i := slices.IndexFunc(tests, is)
	if i < 0 {
		return Test{}, false
	}
	return tests[i], true
}
