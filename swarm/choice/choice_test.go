package choice

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

// order returns how the transports to "p" are tried.
func order(c *Choice) []plan.Transport { return c.Order("p", slices.Clone(plan.Transports)) }

// What failed comes last for a minute, what a probe preferred first, unless it failed.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		for _, step := range []struct {
			name string
			do   func()
			want []plan.Transport
		}{
			{"nothing known", func() {}, plan.Transports},
			{"QUIC failed", func() { c.Failed("p", plan.QUIC, "gets no answer") }, []plan.Transport{plan.TCP, plan.WebSocket, plan.Relay, plan.QUIC}},
			{"another peer's", func() { c.Prefer("q", plan.Relay, "") }, []plan.Transport{plan.TCP, plan.WebSocket, plan.Relay, plan.QUIC}},
			{"the preferred failed", func() { c.Prefer("p", plan.QUIC, "faster") }, []plan.Transport{plan.TCP, plan.WebSocket, plan.Relay, plan.QUIC}},
			{"a minute later", func() { time.Sleep(retryAfter) }, plan.Transports},
			{"TCP preferred", func() { c.Prefer("p", plan.TCP, "faster") }, []plan.Transport{plan.TCP, plan.QUIC, plan.WebSocket, plan.Relay}},
			{"TCP failed", func() { c.Failed("p", plan.TCP, "is refused") }, []plan.Transport{plan.QUIC, plan.WebSocket, plan.Relay, plan.TCP}},
			{"and works", func() { c.Worked("p", plan.TCP) }, []plan.Transport{plan.TCP, plan.QUIC, plan.WebSocket, plan.Relay}},
			{"none preferred", func() { c.Prefer("p", "", "") }, plan.Transports},
		} {
			step.do()
			if got := order(c); !slices.Equal(got, step.want) {
				t.Errorf("%s: %v, want %v", step.name, got, step.want)
			}
		}
	})
}

// A transport that a worse one was faster than is slow, but not where its own try has just ended, and what is known of its
// failure is not forgotten for it.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		why := func() string { return c.Why("p", plan.TCP) }
		c.Worked("p", plan.QUIC)
		if c.Slow("p", plan.QUIC); why() != "" || c.FailedLately("p", plan.QUIC) {
			t.Errorf("a try that has just worked is slow: %q", why())
		}
		time.Sleep(2 * pendingTime)
		if c.Slow("p", plan.QUIC); why() != "UDP has not answered yet" || !c.FailedLately("p", plan.QUIC) {
			t.Errorf("%q", why())
		}
		c.Failed("p", plan.QUIC, "gets no answer")
		time.Sleep(2 * pendingTime)
		if c.Slow("p", plan.QUIC); why() != "UDP gets no answer" {
			t.Errorf("%q", why())
		}
		time.Sleep(retryAfter)
		if c.FailedLately("p", plan.QUIC) {
			t.Error("what failed a minute ago has failed lately")
		}
	})
}

// A reason is what a probe measured, else what is known against a better transport.
func TestWhy(t *testing.T) {
	c := New()
	expect := func(over plan.Transport, want string) {
		t.Helper()
		if got := c.Why("p", over); got != want {
			t.Errorf("%s: %q, want %q", over, got, want)
		}
	}
	expect(plan.Relay, "")
	expect(plan.TCP, "")
	c.Failed("p", plan.TCP, "is refused: nobody listens")
	expect(plan.WebSocket, plan.TCP.String()+" is refused: nobody listens")
	expect(plan.TCP, "")
	c.Prefer("p", plan.TCP, "94 Mbit/s against 61 Mbit/s over QUIC")
	expect(plan.TCP, "94 Mbit/s against 61 Mbit/s over QUIC")
}
