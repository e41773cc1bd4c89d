package link

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"pnode/planner/plan"
)

// How messages are spread is chosen. A sample is what was acknowledged while something was under way. The samples of
// a trial are taken when its connections are up and the first sample, in which congestion windows open, is over.
const (
	sampleTime  = time.Second
	sampleBytes = 1 << 20
	// slowSample ends a sample that has fewer bytes, where there is another transport to try. Where something speaks for that
	// one, sampleTime does.
	slowSample  = 4 * time.Second
	trialFirst  = 1 // samples left out at the beginning of a trial
	trialCounts = 2 // samples that are measured
	// firstRest samples pass after a trial of another number that brought nothing, then twice as many, up to lastRest.
	// A transport rests as many looks, one in each Options.Heartbeat.
	firstRest = 16
	lastRest  = 256
	// Windows limit goodput when messages are held back by them for more than heldParts parts of
	// heldParts+1. The line has room while the queue on it is short: below heldQueue, or a quarter of
	// the round trip.
	heldParts = 3
	heldQueue = 25 * time.Millisecond
	// trialWait looks are the longest wait for the connections of another transport, trialIdle those for a sample.
	trialWait = 20
	trialIdle = 60
	// trialsApart looks are between the trials of two transports: until then what was not kept is closed.
	trialsApart = idleLooks + releaseLooks
	// A transport loses packets where one in lossParts of at least lossPackets was lost.
	lossParts   = 400
	lossPackets = 200
)

// choice says over which transport messages go, and over how many of its connections.
type choice struct {
	over plan.Transport // "" is any
	n    int
}

// way holds what was found out about one transport to a peer.
type way struct {
	n     int  // connections that served best, 0 is unknown
	rest  int  // looks before it is tried
	pause int  // length of the rest after the next failure
	used  int  // looks for which it has served
	slow  bool // it was tried, and another one carried more
	early bool // something speaks for it, and it was not tried since
}

// untried reports whether the transport was neither used nor tried.
func (w way) untried() bool { return w.n == 0 && w.pause == firstRest }

// tuner chooses over which transport, and over how many of its connections, messages go to a peer.
//
// A connection's congestion window halves with each loss, so that on a long line that loses packets for other reasons
// than being full a single one stays far below the line's rate; several of them get more, up to the line. The tuner
// climbs: twice the number is tried, and kept if goodput grows by more than a tenth; half of it is kept if goodput falls
// by less than a twentieth. A trial is compared with a measurement just before it. More are tried where messages wait
// for a window while the line has room, fewer where they do not. A window that nothing waits for carries no more when
// there are two of it. What a new connection takes before its window has opened comes late: at 300 ms a single message
// can hold up a pipeline.
//
// Another transport is tried in the same way, with as many connections as have served it best or as serve now, while
// messages wait or are under way most of the time: some networks slow one protocol down and not the other. It is kept if
// goodput grows by more than a tenth; one that is better by plan.Transports, and tried whether messages wait or not, if
// it falls by less than a twentieth. What has failed a trial rests, longer each time. A relay is no competitor: it costs
// another member's line, and serves where nothing else works.
//
// What was never tried rests less where something speaks for it. When the network comes to prefer a worse transport, since it
// has measured it, that is tried with the next sample, and kept unless a measurement speaks against it. Where the peer has
// connected over another transport, or the one in use loses packets, the trial comes after a short measurement.
//
// A transport without a connection is left at once for another that has one, and tried again like one that has failed a
// trial; where nothing is sent, it is judged when something is, or taken after trialIdle looks.
//
// It is pure: the same calls lead to the same choices.
type tuner struct {
	using   choice
	goodput int64 // bytes a second; 0 is unknown
	why     string
	met     bool // the transport in use has had a connection

	trial  choice // n 0 is none
	begun  bool   // messages go over the trial
	half   int64  // goodput of half as many connections of the transport on trial; 0 is unknown
	waited int    // looks since the last trial of a transport began
	quiet  int    // looks since the last sample

	seen  int // samples since the last change
	bytes uint64
	took  time.Duration
	held  time.Duration // of took
	queue time.Duration // of took
	wall  time.Duration // with what was between the messages
	rest  int           // samples before the next trial of another number
	pause int           // length of the rest after the next failure

	ways   map[plan.Transport]way
	may    []plan.Transport       // over which the peer may be reached, the network's choice first
	up     map[plan.Transport]int // connections
	urgent plan.Transport         // what the network came to prefer, until it is tried; "" is none
}

func newTuner(connections int) *tuner {
	return &tuner{using: choice{n: min(max(1, connections), maxSpread)}, pause: firstRest, waited: trialsApart, ways: map[plan.Transport]way{}}
}

// again returns a tuner that begins with what t has found.
func (t *tuner) again() *tuner {
	next := newTuner(t.using.n)
	next.using, next.goodput, next.why, next.ways = t.using, t.goodput, t.why, maps.Clone(t.ways)
	next.may, next.urgent = t.may, t.urgent
	return next
}

// messages returns over what messages are to go.
func (t *tuner) messages() choice {
	if t.trial.n != 0 && t.begun {
		return t.trial
	}
	if best := t.best(); t.up[t.using.over] == 0 && best != "" {
		return choice{best, t.number(best)}
	}
	return t.using
}

// wanted returns which connections there are to be.
func (t *tuner) wanted() choice {
	if t.trial.n != 0 {
		return t.trial
	}
	return t.using
}

// best returns the transport with a connection that the network prefers, "" without any. A relay comes last.
func (t *tuner) best() plan.Transport {
	for _, over := range slices.Concat(t.may, plan.Transports) {
		if over != plan.Relay && t.up[over] > 0 {
			return over
		}
	}
	if t.up[plan.Relay] > 0 {
		return plan.Relay
	}
	return ""
}

// way returns what is known of a transport.
func (t *tuner) way(over plan.Transport) way {
	if w, ok := t.ways[over]; ok {
		return w
	}
	return way{rest: firstRest, pause: firstRest}
}

// number returns how many connections of a transport to use.
func (t *tuner) number(over plan.Transport) int { return max(1, t.way(over).n) }

// better reports whether a transport is better than another by its kind.
func better(a, b plan.Transport) bool {
	return slices.Index(plan.Transports, a) < slices.Index(plan.Transports, b)
}

// connected takes in which connections there are, over what there may be some, and why connections of a transport have
// ended since the last call, nil for those that were silent; errUnused says that the other end does not need them.
func (t *tuner) connected(up map[plan.Transport]int, may []plan.Transport, ended map[plan.Transport]error) {
	if len(t.may) > 0 && len(may) > 0 && t.may[0] != may[0] {
		t.prefer(may[0])
	}
	before := t.up
	t.up, t.may = up, may
	if t.moving() && up[t.trial.over] < t.trial.n { // some have ended since
		if t.trial.n = up[t.trial.over]; t.trial.n == 0 {
			t.failWay(t.trial.over, false)
			t.fail()
		}
	}
	best := t.best()
	switch {
	case t.using.over == plan.Relay && best != plan.Relay && best != "": // another member's line is free
		t.move(choice{best, t.number(best)}, 0)
		t.why = ""
	case up[t.using.over] > 0:
		t.met = true
	case best == "":
	case t.using.over == "": // the first one, or the one that the network prefers, if it can be had
		t.using.over = best
		if len(may) > 0 && may[0] != plan.Relay {
			t.using.over = may[0]
		}
		t.met = up[t.using.over] > 0
		t.ways[t.using.over] = way{n: t.using.n, rest: firstRest, pause: firstRest}
	case errors.Is(ended[t.using.over], errUnused):
		t.met = false
	case t.met && ended[t.using.over] != nil:
		t.lose(t.using.over, "broke")
	case t.met:
		t.lose(t.using.over, noAnswer)
	}
	for over, n := range up {
		if n > before[over] && over != t.wanted().over { // the peer has made it
			t.favour(over)
		}
	}
	t.begin(false)
}

// favour has a transport that was never tried rest no more, unless it is a relay.
func (t *tuner) favour(over plan.Transport) {
	if w := t.way(over); w.untried() && over != plan.Relay && over != t.using.over && t.using.over != "" {
		w.rest, w.early = 0, true
		t.ways[over] = w
	}
}

// prefer takes in what the network prefers from now on. A better one than the one in use may be preferred for its kind alone.
func (t *tuner) prefer(over plan.Transport) {
	t.favour(over)
	if t.urgent = ""; t.way(over).early && better(t.using.over, over) {
		t.urgent = over
	}
}

// hurries reports whether something speaks for a transport that is not in use, so that short samples count.
func (t *tuner) hurries() bool {
	return slices.ContainsFunc(t.others(), func(over plan.Transport) bool { return t.way(over).early })
}

// lose leaves a transport over which the peer is not reached, for a reason that follows its name; one that has some of
// its connections goes on with these.
func (t *tuner) lose(over plan.Transport, why string) {
	switch up := t.up[over]; {
	case t.trial.n > up && up > 0 && over == t.trial.over && over == t.using.over:
		t.fail()
	case t.trial.n == 0 && t.using.n > up && up > 0 && over == t.using.over:
		t.using.n = up
	case t.trial.n != 0 && t.trial.over == over && over != t.using.over:
		if t.up[over] > 0 { // it has some of its connections
			t.begin(true)
			return
		}
		t.failWay(over, false)
		t.fail()
	case over == t.using.over && t.up[over] == 0 && t.best() != "":
		t.failWay(over, false)
		next := choice{t.best(), t.number(t.best())}
		if t.moving() && t.up[t.trial.over] > 0 {
			next = t.trial
		}
		t.move(next, 0)
		if t.why = carrier(over) + " " + why; next.over != plan.QUIC && better(next.over, over) {
			t.why = "" // the network knows what is against QUIC
		}
	}
}

// noAnswer is why a transport was left that was silent.
const noAnswer = "gets no answer"

// errUnused says that the peer closed a connection which neither end used.
var errUnused = errors.New("link: the connection was not used")

// carrier returns what people call that which carries a transport.
func carrier(over plan.Transport) string {
	switch over {
	case plan.QUIC:
		return "UDP"
	case plan.Relay:
		return "the relay"
	}
	return over.String()
}

// failWay has a transport rest, twice as long as before unless it has served for long since.
func (t *tuner) failWay(over plan.Transport, slow bool) {
	w := t.way(over)
	if w.used > 4*w.pause {
		w.pause = firstRest
	}
	w.rest, w.pause, w.used, w.slow, w.early = w.pause, min(2*w.pause, lastRest), 0, slow, false
	t.ways[over] = w
}

// move settles on a choice, which was measured.
func (t *tuner) move(c choice, goodput int64) {
	if c.over != t.using.over {
		old, now := t.way(t.using.over), t.way(c.over)
		old.n, now.used, now.slow, now.early = t.using.n, 0, false, false
		t.ways[t.using.over], t.ways[c.over] = old, now
	}
	t.using, t.goodput, t.met = c, goodput, t.up[c.over] > 0
	t.trial, t.begun, t.pause = choice{}, false, firstRest
	t.clear()
}

// look takes in that an Options.Heartbeat is over, in which the transport in use served.
func (t *tuner) look() {
	for _, over := range t.others() {
		w, known := t.ways[over]
		if !known {
			w = t.way(over)
		}
		if w.rest = max(0, w.rest-1); !known && t.using.over == plan.Relay {
			w.rest = 0
		}
		t.ways[over] = w
	}
	if w, known := t.ways[t.using.over]; known {
		w.used++
		t.ways[t.using.over] = w
	}
	t.waited++
	t.quiet++
	switch {
	case !t.tryingWay():
		for _, over := range t.others() {
			idle := !t.way(over).slow && t.quiet > trialWait && t.waited >= trialsApart
			if better(over, t.using.over) && t.way(over).rest == 0 && (idle || t.using.over == plan.Relay) {
				t.tryWay(over)
				return
			}
		}
	case !t.begun && t.waited > trialWait:
		t.lose(t.trial.over, noAnswer)
	case t.begun && t.quiet > trialIdle && better(t.trial.over, t.using.over):
		t.failWay(t.using.over, false)
		t.move(t.trial, 0)
		t.why = ""
	case t.begun && t.quiet > trialIdle:
		t.failWay(t.trial.over, false)
		t.fail()
	}
}

// others lists the transports that are not in use and may work, the better first.
func (t *tuner) others() (all []plan.Transport) {
	for _, over := range plan.Transports {
		if over != t.using.over && (t.up[over] > 0 || slices.Contains(t.may, over)) {
			all = append(all, over)
		}
	}
	return all
}

// sample says how many bytes the peer has acknowledged while messages were under way for the time took. For the time
// queue, a part of it, some of them were not sent yet; for the time held, a part of that, windows were in their way and
// not the line. In all the time wall went by, and packets were sent, some of which the network lost.
type sample struct {
	bytes                   uint64
	took, queue, held, wall time.Duration
	packets, lost           uint64
}

// lossy reports whether packets were lost though the line had room: those that a full line loses say nothing against it.
func (s sample) lossy() bool {
	return s.packets >= lossPackets && s.lost*lossParts >= s.packets && s.held > s.queue/2
}

// sample takes in one sample.
func (t *tuner) sample(s sample) {
	if up, want := t.up[t.messages().over], t.messages().n; up < want && t.seen == 0 {
		if t.rest++; t.rest > lastRest { // they do not come up
			if t.trial.n == 0 && t.up[t.using.over] > 0 {
				t.using.n = t.up[t.using.over]
			}
			t.fail()
		}
		return
	}
	t.seen++
	t.quiet = 0
	if t.urgent != "" && !t.tryingWay() {
		over := t.urgent
		if t.urgent = ""; slices.Contains(t.others(), over) {
			t.tryWay(over)
			return
		}
	}
	if s.lossy() {
		for _, over := range t.others() {
			t.favour(over)
		}
	}
	if t.seen <= trialFirst {
		return
	}
	t.bytes, t.took, t.queue, t.held, t.wall = t.bytes+s.bytes, t.took+s.took, t.queue+s.queue, t.held+s.held, t.wall+s.wall
	goodput := int64(float64(t.bytes) / t.took.Seconds())
	if t.seen < trialFirst+trialCounts && !(t.moving() && goodput < t.goodput/2) {
		return
	}
	limited, waiting := t.held > t.took*heldParts/(heldParts+1), t.queue > t.took/2 || t.took > t.wall/2
	if t.trial.n != 0 && t.begun {
		t.judge(goodput, limited)
		return
	}
	t.goodput = goodput
	t.clear()
	t.seen = trialFirst // the next measurement begins at once
	if t.trial.n != 0 {
		return
	}
	for _, over := range t.others() {
		if t.way(over).early && t.waited >= trialsApart {
			t.tryWay(over)
			return
		}
	}
	if t.rest -= trialCounts; t.rest <= 0 && t.try(limited) {
		return
	}
	for _, over := range t.others() {
		if over == plan.Relay {
			break
		}
		if t.way(over).rest == 0 && t.waited >= trialsApart && (waiting || better(over, t.using.over)) {
			t.tryWay(over)
			return
		}
	}
}

// tryingWay reports whether another transport is on trial, moving whether messages go over it.
func (t *tuner) tryingWay() bool { return t.trial.n != 0 && t.trial.over != t.using.over }
func (t *tuner) moving() bool    { return t.tryingWay() && t.begun }

// judge ends a trial.
func (t *tuner) judge(goodput int64, limited bool) {
	costs, moving := t.trial.n > t.using.n, t.moving()
	if moving {
		costs = better(t.using.over, t.trial.over)
	}
	keep := goodput > t.goodput-t.goodput/20
	if costs {
		keep = goodput > t.goodput+t.goodput/10
	}
	switch {
	case keep && moving:
		if t.why = ""; t.goodput > 0 { // else nothing was sent over the one before
			t.why = fmt.Sprintf("%s over %v against %s over %v", plan.Bandwidth(goodput), t.trial.over, plan.Bandwidth(t.goodput), t.using.over)
		}
		t.failWay(t.using.over, true)
		t.move(t.trial, goodput)
		t.try(limited)
	case keep:
		t.move(t.trial, goodput)
		t.try(costs)
	case moving && limited && t.climb(goodput):
	default:
		if moving {
			t.failWay(t.trial.over, true)
		}
		t.fail()
	}
}

// climb goes on with a trial of another transport over twice as many connections, where these can still bring enough:
// each as much as those before, and more in all than half as many.
func (t *tuner) climb(goodput int64) bool {
	n := 2 * t.trial.n
	most := goodput / int64(t.trial.n) * maxSpread
	if n > min(maxSpread, t.room(t.trial.over)) || most < t.goodput || goodput < t.half+t.half/10 {
		return false
	}
	t.trial.n, t.half, t.begun, t.waited = n, goodput, false, 0
	t.begin(false)
	return true
}

// try begins a trial of another number, if there is one to be made: of more connections where windows limit goodput, of
// fewer where they do not.
func (t *tuner) try(limited bool) bool {
	n := t.using.n / 2
	if limited {
		n = 2 * t.using.n
	}
	reached := len(t.may) == 0 || slices.Contains(t.may, t.using.over) || n <= t.up[t.using.over]
	if n < 1 || n > maxSpread || n > t.room(t.using.over) || !reached {
		return false
	}
	t.trial, t.begun, t.rest = choice{t.using.over, n}, true, 0
	t.clear()
	return true
}

// tryWay begins a trial of another transport, once its connections are up.
func (t *tuner) tryWay(over plan.Transport) {
	n := t.way(over).n
	if n == 0 {
		n = t.using.n
	}
	if n = min(n, t.room(over)); n < 1 {
		return
	}
	t.trial, t.begun, t.waited, t.half = choice{over, n}, false, 0, 0
	t.begin(false)
}

// room returns how many connections of a transport there may be.
func (t *tuner) room(over plan.Transport) int {
	all := 0
	for _, n := range t.up {
		all += n
	}
	return maxConns - all + t.up[over]
}

// begin has messages go over a transport on trial when its connections are up; enough says that these are all.
func (t *tuner) begin(enough bool) {
	if t.trial.n == 0 || t.begun || t.up[t.trial.over] < t.trial.n && !enough {
		return
	}
	t.trial.n = min(t.trial.n, t.up[t.trial.over])
	t.begun, t.quiet = true, 0
	t.clear()
}

// clear begins a measurement.
func (t *tuner) clear() { t.seen, t.bytes, t.took, t.queue, t.held, t.wall = 0, 0, 0, 0, 0, 0 }

// fail goes back to what served before the trial, for a rest.
func (t *tuner) fail() {
	if t.trial.over == t.using.over || t.trial.n == 0 {
		t.rest, t.pause = t.pause, min(2*t.pause, lastRest)
	}
	t.trial, t.begun = choice{}, false
	t.clear()
}
