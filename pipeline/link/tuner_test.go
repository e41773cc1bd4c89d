package link

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
	"pnode/swarm/transport"
)

// world simulates links: connections come up as a tuner wants them, and carry what each transport allows.
type world struct {
	tuner *tuner
	may   []plan.Transport
	// line is the rate of each transport, per that of one connection of it, both in bytes a second.
	line, per map[plan.Transport]float64
	// dead transports answer nothing.
	dead map[plan.Transport]bool
	up   map[plan.Transport]int
	// idleFor counts for how many seconds a transport was not used.
	idleFor map[plan.Transport]int
	random  *rand.Rand
	noise   float64
	idle    bool // nothing is sent
	// changes counts how often what messages go over changed, moves how often the transport did.
	changes, moves int
}

func newWorld(t *tuner, may ...plan.Transport) *world {
	return &world{
		tuner: t, may: may, line: map[plan.Transport]float64{}, per: map[plan.Transport]float64{}, dead: map[plan.Transport]bool{},
		up: map[plan.Transport]int{}, idleFor: map[plan.Transport]int{}, random: rand.New(rand.NewPCG(1, 2)), noise: 0.03,
	}
}

// with sets what a transport carries.
func (w *world) with(over plan.Transport, line, per float64) *world {
	w.line[over], w.per[over] = line, per
	return w
}

// connect makes the connections that are wanted, and ends those of transports that are dead or not used for long.
func (w *world) connect() {
	for over := range w.up {
		if w.idleFor[over]++; over == w.tuner.messages().over || over == w.tuner.wanted().over || over == w.tuner.using.over {
			w.idleFor[over] = 0
		}
		if w.dead[over] || w.idleFor[over] > idleLooks {
			delete(w.up, over)
		}
	}
	want := w.tuner.wanted()
	if want.over == "" || len(w.up) == 0 {
		for _, over := range w.may {
			if !w.dead[over] && (len(w.up) == 0 || w.up[over] > 0) {
				w.up[over] = max(1, w.up[over])
				break
			}
		}
	}
	w.tuner.connected(w.up, w.may, nil)
	if want = w.tuner.wanted(); want.over != "" && w.dead[want.over] {
		w.tuner.lose(want.over, noAnswer)
	} else if want.over != "" && len(w.up) > 0 {
		w.up[want.over] = max(w.up[want.over], want.n)
	}
	w.tuner.connected(w.up, w.may, nil)
}

// run has n seconds go by and returns the mean rate.
func (w *world) run(n int) (mean float64) {
	for range n {
		w.connect()
		w.tuner.look()
		before := w.tuner.messages()
		if !w.idle {
			carries := min(w.line[before.over], float64(before.n)*w.per[before.over])
			g := carries * (1 - w.noise + 2*w.noise*w.random.Float64())
			s := sample{bytes: uint64(g), took: time.Second, queue: time.Second, wall: time.Second}
			if float64(before.n)*w.per[before.over] < w.line[before.over] {
				s.held = time.Second // otherwise it is the line that messages wait for
			}
			mean += g / float64(n)
			w.tuner.sample(s)
		}
		if after := w.tuner.messages(); after != before {
			w.changes++
			if after.over != before.over {
				w.moves++
			}
		}
	}
	return mean
}

func TestSteeringClimbsToTheLine(t *testing.T) {
	for _, c := range []struct {
		name             string
		line, per        float64
		fewest, most     int
		start, withinMax int
	}{
		{"a clean line needs one", 12.5e6, 12e6, 1, 1, 1, 40},
		{"half of it", 12.5e6, 6e6, 2, 2, 1, 40},
		{"a lossy line needs all", 12.5e6, 0.75e6, 16, 16, 1, 40},
		{"a good line that was lossy", 12.5e6, 12e6, 1, 1, 16, 400},
	} {
		w := newWorld(newTuner(c.start), plan.QUIC).with(plan.QUIC, c.line, c.per)
		w.run(c.withinMax)
		if n := w.tuner.using.n; n < c.fewest || n > c.most {
			t.Errorf("%s: settled at %d, want %d to %d", c.name, n, c.fewest, c.most)
		}
		w.changes = 0
		if mean := w.run(2000); w.changes > 4*2000/lastRest+4 || mean < 0.9*min(c.line, c.per*float64(c.most)) {
			t.Errorf("%s: %d changes and a mean of %.0f once settled", c.name, w.changes, mean)
		}
	}
}

func TestSteeringWaitsForConnections(t *testing.T) {
	s := newTuner(1)
	held := sample{bytes: 1e6, took: time.Second, queue: time.Second, held: time.Second}
	s.connected(map[plan.Transport]int{plan.QUIC: 1}, nil, nil)
	for range trialFirst + trialCounts {
		s.sample(held)
	}
	if s.wanted().n != 2 {
		t.Fatalf("wants %d", s.wanted().n)
	}
	for range lastRest {
		s.sample(held)
	}
	if s.wanted().n != 2 {
		t.Error("a trial was judged whose connection is not up")
	}
	s.sample(held)
	if s.wanted().n != 1 || s.using.n != 1 {
		t.Errorf("wants %d though no second connection comes up", s.wanted().n)
	}
}

// TestSteeringGoesOnWithTheConnectionsThatThereAre, where more cannot be dialed: a trial of more ends at once, and what
// an earlier session used is given up.
func TestSteeringGoesOnWithTheConnectionsThatThereAre(t *testing.T) {
	held := sample{bytes: 1e6, took: time.Second, queue: time.Second, held: time.Second}
	for _, dials := range []bool{true, false} { // whether dials fail, or are not made for want of room
		s, up := newTuner(4), map[plan.Transport]int{plan.QUIC: 1}
		s.connected(up, nil, nil)
		if dials {
			s.lose(plan.QUIC, noAnswer)
		}
		for range lastRest + 2 + trialFirst + trialCounts {
			s.sample(held)
		}
		if s.using != (choice{plan.QUIC, 1}) || s.goodput == 0 {
			t.Errorf("dials fail %v: uses %v of one connection, goodput %d", dials, s.using, s.goodput)
		}
	}
	s := newTuner(1)
	s.connected(map[plan.Transport]int{plan.QUIC: 1}, nil, nil)
	for range trialFirst + trialCounts {
		s.sample(held)
	}
	if s.wanted().n != 2 {
		t.Fatalf("wants %d", s.wanted().n)
	}
	s.lose(plan.QUIC, noAnswer)
	if s.wanted().n != 1 || s.rest != firstRest {
		t.Errorf("wants %d after a rest of %d though no second connection can be dialed", s.wanted().n, s.rest)
	}
}

// TestWhyATransportWasLeft: one whose connections were reset did answer. That a worse one did not is no reason against QUIC.
func TestWhyATransportWasLeft(t *testing.T) {
	worse, web := newTuner(1), []plan.Transport{plan.WebSocket, plan.TCP}
	worse.connected(map[plan.Transport]int{plan.WebSocket: 1}, web, nil)
	worse.connected(map[plan.Transport]int{plan.TCP: 1}, web, nil)
	if worse.using.over != plan.TCP || worse.why != "" {
		t.Errorf("uses %v, since %q", worse.using.over, worse.why)
	}
	for why, err := range map[string]error{"TCP broke": syscall.ECONNRESET, "TCP gets no answer": nil} {
		s, may := newTuner(1), []plan.Transport{plan.TCP, plan.QUIC}
		s.connected(map[plan.Transport]int{plan.TCP: 1}, may, nil)
		s.connected(map[plan.Transport]int{plan.QUIC: 1}, may, map[plan.Transport]error{plan.TCP: err})
		if s.using.over != plan.QUIC || s.why != why {
			t.Errorf("uses %v, since %q, want %q", s.using.over, s.why, why)
		}
	}
	idle := newWorld(newTuner(1), plan.TCP, plan.QUIC).with(plan.TCP, 1e6, 1e6).with(plan.QUIC, 1e6, 1e6)
	for idle.idle = true; !idle.tuner.tryingWay(); {
		idle.run(1)
	}
	idle.idle = false
	if idle.run(2 * (trialFirst + trialCounts)); idle.tuner.using.over != plan.QUIC || idle.tuner.why != "" {
		t.Errorf("uses %v after an idle time over TCP, since %q, which was not measured", idle.tuner.using.over, idle.tuner.why)
	}
	silent := &transport.ConnError{Code: codeSilent}
	for _, c := range []struct{ err, want error }{
		{silent, nil},
		{&transport.ConnError{Code: codeReplaced, Remote: true}, errUnused},
		{syscall.ECONNRESET, syscall.ECONNRESET},
		{os.ErrDeadlineExceeded, nil},
		{&quic.IdleTimeoutError{}, nil},
	} {
		if got := ending(c.err); !errors.Is(got, c.want) {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

// TestSteeringLeavesWellAlone: where no window holds messages back, no more connections are
// tried, and fewer are; where they hardly wait, no worse transport is.
func TestSteeringLeavesWellAlone(t *testing.T) {
	s := newTuner(4)
	most := 0
	for range 1000 {
		s.connected(map[plan.Transport]int{plan.QUIC: s.wanted().n}, plan.Transports, nil)
		s.look()
		s.sample(sample{bytes: 1e6, took: time.Second, queue: time.Second / 2, held: time.Second / 2, wall: 2 * time.Second})
		most = max(most, s.wanted().n)
		if s.wanted().over != plan.QUIC {
			t.Fatal("tries another transport")
		}
	}
	if most > 4 || s.wanted().n != 1 {
		t.Errorf("up to %d connections, %d in the end", most, s.wanted().n)
	}
}

// TestTransportThatCarriesMost is settled on, in few steps, and left for trials only.
func TestTransportThatCarriesMost(t *testing.T) {
	for _, c := range []struct {
		name string
		w    *world
		want plan.Transport
		most int // connections in the end
	}{
		{"UDP is slowed down", newWorld(newTuner(1), plan.QUIC, plan.TCP).with(plan.QUIC, 7.6e6, 7.6e6).with(plan.TCP, 11.7e6, 11.7e6), plan.TCP, 1},
		{
			"UDP loses packets, and 16 connections cannot make up for it",
			newWorld(newTuner(1), plan.QUIC, plan.TCP).with(plan.QUIC, 12.5e6, 0.3e6).with(plan.TCP, 11.7e6, 11.7e6), plan.TCP, 1,
		},
		{
			"UDP loses packets, and 16 connections do",
			newWorld(newTuner(1), plan.QUIC, plan.TCP).with(plan.QUIC, 12.5e6, 0.75e6).with(plan.TCP, 11.7e6, 11.7e6), plan.QUIC, 16,
		},
		{"both are the same", newWorld(newTuner(1), plan.QUIC, plan.TCP).with(plan.QUIC, 11e6, 11e6).with(plan.TCP, 11e6, 11e6), plan.QUIC, 1},
		{"a WebSocket comes first", newWorld(newTuner(1), plan.WebSocket, plan.QUIC).with(plan.QUIC, 11e6, 11e6).with(plan.WebSocket, 11e6, 11e6), plan.QUIC, 1},
		{
			"the best of those without a relay",
			newWorld(newTuner(1), plan.Transports...).with(plan.QUIC, 1e6, 1e6).with(plan.TCP, 2e6, 2e6).with(plan.WebSocket, 3e6, 3e6).with(plan.Relay, 9e6, 9e6),
			plan.WebSocket, 1,
		},
	} {
		c.w.run(400)
		if got := c.w.tuner.using; got.over != c.want || got.n > c.most {
			t.Errorf("%s: %v over %d connections after 400 s, want %v over %d", c.name, got.over, got.n, c.want, c.most)
		}
		c.w.moves = 0
		best := min(c.w.line[c.want], float64(c.most)*c.w.per[c.want])
		trials := 2 * (len(c.w.may) - 1) * (4000/lastRest + 3)
		if mean := c.w.run(4000); c.w.moves > trials || mean < 0.93*best || c.w.tuner.using.over != c.want {
			t.Errorf("%s: %d moves in 4000 s, a mean of %.0f B/s, and %v in the end", c.name, c.w.moves, mean, c.w.tuner.using.over)
		}
	}
}

// TestTransportThatAnswersNothing is left at once and comes back when it answers again, after a rest that grows.
func TestTransportThatAnswersNothing(t *testing.T) {
	for _, idle := range []bool{false, true} {
		w := newWorld(newTuner(1), plan.QUIC, plan.TCP).with(plan.QUIC, 10e6, 10e6).with(plan.TCP, 10e6, 10e6)
		w.idle = idle
		w.run(30)
		w.dead[plan.QUIC] = true
		w.up[plan.TCP] = 1
		w.run(1)
		if got := w.tuner.messages(); got.over != plan.TCP || w.tuner.why != "UDP gets no answer" {
			t.Fatalf("messages go over %v, %q", got, w.tuner.why)
		}
		w.run(1000)
		w.moves = 0
		w.dead[plan.QUIC] = false
		w.run(lastRest + trialIdle + trialWait)
		most := 1
		if !idle {
			most += 2 * 4 // TCP is tried, with rests that double
		}
		if got := w.tuner.using.over; got != plan.QUIC || w.moves > most {
			t.Errorf("idle %v: %v after it answers again, %d moves", idle, got, w.moves)
		}
	}
}

// TestRelayGivesWay: a relay is left as soon as another connection stands, whoever made it, and until then the others are
// tried at once.
func TestRelayGivesWay(t *testing.T) {
	relayed := func(may ...plan.Transport) *tuner {
		s := newTuner(1)
		s.connected(map[plan.Transport]int{plan.Relay: 1}, may, nil)
		if s.messages() != (choice{plan.Relay, 1}) {
			t.Fatalf("messages go over %v", s.messages())
		}
		return s
	}
	s := relayed(plan.Relay)
	s.connected(map[plan.Transport]int{plan.Relay: 1, plan.WebSocket: 1}, []plan.Transport{plan.Relay}, nil)
	if s.messages().over != plan.WebSocket {
		t.Errorf("messages go over %v though the peer has come over WebSocket", s.messages())
	}
	s = relayed(plan.QUIC, plan.TCP, plan.Relay)
	var tried []plan.Transport
	for range 4 {
		if want := s.wanted().over; want != plan.Relay {
			tried = append(tried, want)
			s.lose(want, noAnswer)
		}
		s.look()
	}
	if !slices.Equal(tried, []plan.Transport{plan.QUIC, plan.TCP}) || s.using.over != plan.Relay {
		t.Errorf("tried %v, uses %v", tried, s.using)
	}
	for range firstRest {
		s.look()
	}
	if s.wanted().over != plan.QUIC {
		t.Errorf("wants %v", s.wanted())
	}
}

// TestSmallMessagesOnABadLineTryAnother: messages that are under way nearly all the time, though none waits to be sent.
func TestSmallMessagesOnABadLineTryAnother(t *testing.T) {
	s := newTuner(1)
	up := map[plan.Transport]int{plan.QUIC: 1}
	for range 3 * firstRest {
		s.connected(up, []plan.Transport{plan.QUIC, plan.TCP}, nil)
		s.look()
		s.sample(sample{bytes: 200e3, took: 3500 * time.Millisecond, wall: 4 * time.Second})
		if s.wanted().over == plan.TCP {
			return
		}
	}
	t.Errorf("wants %v", s.wanted())
}

// TestWhatSpeaksForATransport: that the network prefers it after a measurement has it tried with the next sample; that the
// peer has connected over it, or that packets are lost on a line with room, after a measurement. Any of them but once: what
// has failed a trial rests.
func TestWhatSpeaksForATransport(t *testing.T) {
	quic, both := map[plan.Transport]int{plan.QUIC: 1}, map[plan.Transport]int{plan.QUIC: 1, plan.TCP: 1}
	usual, other := []plan.Transport{plan.QUIC, plan.TCP, plan.Relay}, []plan.Transport{plan.TCP, plan.QUIC, plan.Relay}
	calm := sample{bytes: 500e3, took: time.Second, queue: time.Second / 4, wall: 5 * time.Second, packets: 500}
	lossy := calm
	lossy.lost, lossy.held = 10, calm.queue
	full := lossy
	full.held = 0
	for _, c := range []struct {
		name    string
		up      map[plan.Transport]int
		may     []plan.Transport
		s       sample
		samples int // until TCP is tried; 0 is never
	}{
		{"nothing", quic, usual, calm, 0},
		{"the network's choice", quic, other, calm, 1},
		{"the peer's connection", both, usual, calm, trialFirst + trialCounts},
		{"losses", quic, usual, lossy, trialFirst + trialCounts},
		{"losses on a line that is full", quic, usual, full, 0},
	} {
		s := newTuner(1)
		s.connected(quic, usual, nil)
		s.look()
		s.connected(c.up, c.may, nil)
		got := 0
		for i := range firstRest {
			if s.sample(c.s); s.wanted().over == plan.TCP {
				got = i + 1
				break
			}
		}
		if got != c.samples {
			t.Errorf("%s: TCP is tried after %d samples, want %d", c.name, got, c.samples)
		}
		if c.samples == 0 {
			continue
		}
		s.lose(plan.TCP, noAnswer)
		s.connected(quic, usual, nil)
		s.connected(both, other, nil)
		for range firstRest {
			if s.sample(c.s); s.wanted().over == plan.TCP || s.hurries() {
				t.Errorf("%s: what does not answer is tried again at once", c.name)
				break
			}
		}
	}
}

// TestTransportThatComesAndGoes is used less and less often.
func TestTransportThatComesAndGoes(t *testing.T) {
	w := newWorld(newTuner(1), plan.QUIC, plan.TCP).with(plan.QUIC, 10e6, 10e6).with(plan.TCP, 10e6, 10e6)
	moves := [2]int{}
	for i := range 200 {
		w.dead[plan.QUIC], w.moves = i%2 == 1, 0
		w.run(20)
		moves[i/100] += w.moves
	}
	if moves[0] > 20 || moves[1] > moves[0]/2+2 {
		t.Errorf("%d moves in 2000 s, %d in the next ones", moves[0], moves[1])
	}
}

// TestNextSessionBeginsWithWhatWasFound, even if its first connection is another one.
func TestNextSessionBeginsWithWhatWasFound(t *testing.T) {
	w := newWorld(newTuner(1), plan.QUIC, plan.TCP).with(plan.QUIC, 2e6, 2e6).with(plan.TCP, 11e6, 3e6)
	w.run(200)
	found := w.tuner.using
	if found.over != plan.TCP || found.n != 4 {
		t.Fatalf("found %v", found)
	}
	next := w.tuner.again()
	next.connected(map[plan.Transport]int{plan.QUIC: 1}, w.may, nil)
	if next.messages().over != plan.QUIC || next.wanted() != found {
		t.Errorf("messages go over %v, %v is wanted", next.messages(), next.wanted())
	}
	next.connected(map[plan.Transport]int{plan.QUIC: 1, plan.TCP: 1}, w.may, nil)
	if next.messages() != found {
		t.Errorf("messages go over %v", next.messages())
	}
}

// TestSteeringOfAnyRates: whatever transports carry, as long as it stays so, the choice ends within a tenth and the noise
// of the best, moves get rare, and connections stay bounded.
func TestSteeringOfAnyRates(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			all := append([]plan.Transport{}, plan.Transports...)
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			w := newWorld(newTuner(1), all[:1+r.IntN(len(all))]...)
			w.random, w.noise = r, 0.02
			best := 0.0
			for _, over := range w.may {
				line := 1e6 * (1 + 20*r.Float64())
				w.with(over, line, line*(0.07+r.Float64()))
				w.dead[over] = len(w.may) > 1 && over != w.may[0] && r.IntN(4) == 0
				if !w.dead[over] && over != plan.Relay {
					best = max(best, min(line, maxSpread*w.per[over]))
				}
			}
			for range 3000 {
				w.run(1)
				sum := 0
				for _, n := range w.up {
					sum += n
				}
				if sum > maxConns {
					t.Fatalf("%d connections", sum)
				}
				if w.tuner.moving() && w.tuner.using.over == w.tuner.trial.over {
					t.Fatal("tries what is in use")
				}
			}
			if now := w.line[w.tuner.using.over]; min(now, float64(w.tuner.using.n)*w.per[w.tuner.using.over]) < 0.8*best {
				t.Errorf("ends with %v: %.0f B/s of %.0f", w.tuner.using, now, best)
			}
			w.moves = 0
			if w.run(2000); w.moves > 4*(len(w.may)-1)*(2000/lastRest+2) {
				t.Errorf("%d moves in 2000 s", w.moves)
			}
		})
	}
}
