package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"pnode/planner/plan"
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
	r.Verdict = fmt.Sprintf("this machine cannot join: %s: %s", r.Cause, t.Says)
	return true
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
		if t, ok := first(r.Tests, func(t Test) bool { return t.Part == b.part && t.Result == Fails }); ok {
			blame(t, fmt.Sprintf("%s to %s %s", b.word, t.Target, short(t.Finding)))
		}
	}
	for _, part := range []Part{DNS, Route} {
		if t, ok := first(r.Tests, func(t Test) bool { return t.Part == part && t.Result == Fails }); ok && len(better) > 0 && len(degraded) == 0 {
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
	case Cut:
		return "is cut"
	case TooBig:
		return "takes small packets alone"
	case OtherNode:
		return "reaches another node"
	case Foreign:
		return "reaches something else"
	case Busy:
		return "finds no place"
	}
	return "fails"
}

// judgeFailure fills in the verdict where no transport works: the part that explains most comes first.
func (r *Report) judgeFailure() {
	has := func(part Part, findings ...Finding) (Test, bool) {
		return first(r.Tests, func(t Test) bool {
			return t.Part == part && t.Result == Fails && (len(findings) == 0 || slices.Contains(findings, t.Finding))
		})
	}
	behindRelay := ""
	if _, ok := has(Relay); ok {
		behindRelay = "the relay to the contact is not reached: "
	}
	say := func(cause Part, tried []Test, do string) {
		if r.Cause = cause; behindRelay != "" {
			r.Cause = Relay
		}
		r.Do = do
		r.Verdict = "this machine cannot join: " + behindRelay + sentence(tried)
	}
	udp, udpFails := has(UDP)
	tcp, tcpFails := has(TCP)
	for _, part := range []Part{UDP, TCP} {
		if t, ok := has(part, ClockBehind, ClockAhead); ok {
			say(Clock, []Test{t}, t.Do)
			return
		}
	}
	for _, part := range []Part{UDP, TCP} {
		if t, ok := has(part, OtherNode, Busy); ok {
			say(part, []Test{t}, t.Do)
			return
		}
	}
	var tried []Test
	if udpFails {
		tried = append(tried, udp)
	}
	if tcpFails {
		tried = append(tried, tcp)
	}
	if p, ok := has(Proxy); ok {
		say(Proxy, append(tried, p), p.Do)
		return
	}
	if web, ok := has(WebSocket); ok && (!tcpFails || web.Finding != tcp.Finding) {
		tried = append(tried, web)
	}
	switch {
	case udpFails && udp.Finding == Refused && (!tcpFails || tcp.Finding == Refused):
		say(UDP, tried, udp.Do)
	case len(tried) > 0 && (!udpFails || udp.Finding == Silent) && (!tcpFails || tcp.Finding == Silent):
		do := "see that the machine there is on and its node runs; open UDP and TCP to that port there and on the way"
		if p, ok := first(r.Tests, func(t Test) bool { return t.Part == Proxy }); ok && p.Result == NotNeeded {
			do += "; where only a proxy leads out, name it in HTTPS_PROXY"
		}
		say(tried[len(tried)-1].Part, tried, do)
	case len(tried) > 0:
		last := tried[len(tried)-1]
		say(last.Part, tried, last.Do)
	default:
		for _, part := range []Part{Route, DNS, Relay} {
			if t, ok := has(part); ok {
				say(part, []Test{t}, t.Do)
				return
			}
		}
		r.Verdict = "this machine cannot join: the invite names no address that could be tried"
		r.Cause, r.Do = Invite, "ask for a new one (`pnode invite`)"
	}
}

// sentence returns what tests did and found.
func sentence(tests []Test) string {
	var found []string
	for i := 0; i < len(tests); i++ {
		t := tests[i]
		did, over := t.Did, word(t.Part)
		if i+1 < len(tests) && tests[i+1].Says == t.Says && tests[i+1].Target == t.Target {
			i++
			did, over = did+"; "+tests[i].Did, over+" and "+word(tests[i].Part)
		}
		found = append(found, fmt.Sprintf("%s %s (%s): %s", over, t.Target, did, t.Says))
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
