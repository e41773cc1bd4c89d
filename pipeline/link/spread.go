package link

import (
	"cmp"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/transport"
)

const (
	// releaseLooks after messages have left a transport, what is still under way on it is sent over the new one.
	releaseLooks = 3
	// A connection that this end made and does not use is closed when it has carried less than idleBytes for idleLooks:
	// heartbeats alone. It is of another transport than the one in use, or one more than are in use.
	idleLooks = 30
	idleBytes = 64 << 10
)

// tune hands the tuner a sample when there is enough of it, and follows its choice.
func (r *remote) tune() {
	r.tuner.look()
	now := sample{took: r.busy.total(), queue: r.waits.total(), held: r.held.total()}
	for _, o := range r.outboxes {
		acked, _, _ := o.state()
		now.bytes += acked
	}
	now.wall = time.Since(r.begun)
	s := sample{
		bytes: now.bytes - r.sampled.bytes, took: now.took - r.sampled.took, queue: now.queue - r.sampled.queue,
		held: now.held - r.sampled.held, wall: now.wall - r.sampled.wall,
	}
	for _, c := range r.connections {
		if c.conn.Transport() == r.tuner.using.over {
			st := c.conn.Stats()
			s.packets, s.lost = s.packets+st.PacketsSent-c.packets, s.lost+st.PacketsLost-c.lost
		}
	}
	slow := len(r.tuner.others()) > 0 && (s.took >= slowSample || r.tuner.hurries() || s.lossy())
	if s.took >= sampleTime && (s.bytes >= sampleBytes || slow) {
		r.sampled = now
		for _, c := range r.connections {
			st := c.conn.Stats()
			c.packets, c.lost = st.PacketsSent, st.PacketsLost
		}
		r.tuner.sample(s)
	}
	r.spread()
	for _, c := range r.connections {
		r.leaveUnused(c)
	}
}

// spread has messages go over the connections that the tuner chose.
func (r *remote) spread() {
	e, m, rank := r.session.endpoint, r.tuner.messages(), int32(0)
	for _, c := range r.connections {
		if m.over != "" && c.conn.Transport() != m.over {
			c.rank.Store(maxConns)
			continue
		}
		c.rank.Store(rank)
		rank++
	}
	r.want.Store(int32(m.n))
	r.stir()
	e.mu.Lock()
	e.peer(r.id).over = m.over
	e.mu.Unlock()
	now, why := r.tuner.using, r.tuner.why // a trial is nothing to tell of
	if m.over != now.over && !r.tuner.moving() {
		now, why = m, "" // the one to use has no connection yet, or none any more
	}
	r.mu.Lock()
	r.over, r.why = now.over, why
	r.mu.Unlock()
	r.tell(now, why)
}

// tell logs a choice that is new, and why it is made, "" where the network knows.
func (r *remote) tell(now choice, why string) {
	if now == r.told {
		return
	}
	log := r.session.endpoint.log.Debug
	if now.over != r.told.over && now.over != "" && (r.told.over != "" || now.over != plan.QUIC) {
		log = r.session.endpoint.log.Info
	}
	r.told = now
	attrs := []any{"peer", r.session.endpoint.opt.Name(r.id), "transport", now.over.String(), "connections", now.n}
	if r.tuner.goodput > 0 {
		attrs = append(attrs, "goodput", plan.Bandwidth(r.tuner.goodput))
	}
	if why := cmp.Or(why, r.session.endpoint.why(r.id, now.over)); why != "" {
		attrs = append(attrs, "reason", why)
	}
	log("data link", attrs...)
}

// leaveUnused takes back what is under way on a connection of a transport that messages have left, and closes one that
// neither end has a use for any more: of such a transport, or one of those that were made in a silence that has passed.
func (r *remote) leaveUnused(c *connection) {
	over, stats := c.conn.Transport(), c.conn.Stats()
	rank, needed := c.rank.Load(), 0
	for _, use := range []choice{r.tuner.messages(), r.tuner.wanted(), r.tuner.using} {
		if use.over == "" || use.over == over {
			needed = max(needed, use.n)
		}
	}
	if int(rank) < needed {
		c.idle = 0
		return
	}
	if c.idle++; c.idle == 1 {
		c.carried = stats.BytesSent + stats.BytesReceived
	}
	if c.idle >= releaseLooks && rank == maxConns {
		c.release()
	}
	if c.idle < idleLooks || rank == maxConns && needed > 0 {
		return
	}
	if c.conn.dialed && stats.BytesSent+stats.BytesReceived-c.carried < idleBytes {
		r.session.endpoint.end(c.conn, codeReplaced, "not used")
	}
	c.idle = 0
}

// noteHeld derives from a connection's newest round trip whether messages wait, and whether a window holds them back.
func (r *remote) noteHeld(c transport.Stats) {
	some := false
	for _, o := range r.outboxes {
		_, _, waiting := o.state()
		some = some || waiting
	}
	r.waits.set(some)
	r.held.set(some && c.LatestRTT-c.MinRTT < max(heldQueue, c.MinRTT/4))
}
