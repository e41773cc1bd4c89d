package monitor

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// shownMember is a member as it was last shown.
type shownMember struct {
	epoch uint64 // of its process
	state consensus.MemberState
}

// roster holds the members at the last look, nil before the first one.
type roster map[plan.PeerID]shownMember

// news returns sentences about what changed since the last look; the first look counts the
// members.
func (r *roster) news(s consensus.State, self plan.PeerID) (news []string) {
	before := *r
	*r = roster{}
	active := 0
	for _, m := range s.Members {
		(*r)[m.Peer] = shownMember{m.ProcessEpoch, m.State}
		if m.State != consensus.Gone {
			active++
		}
		was, known := before[m.Peer]
		if text := change(was, known, m); text != "" && before != nil {
			who := "this node"
			if m.Peer != self {
				who = s.NameOf(m.Peer)
			}
			news = append(news, who+" "+text)
		}
	}
	if before == nil {
		return []string{fmt.Sprintf("this node is in the run, one of %s", plan.Count(active, "node"))}
	}
	return news
}

// change returns what happened to a member since it was last shown, if it was known.
func change(was shownMember, known bool, m consensus.Member) string {
	switch {
	case m.State == consensus.Gone && known && was.state == consensus.Gone:
		return ""
	case m.State == consensus.Gone && m.Reason == "":
		return "has left"
	case m.State == consensus.Gone:
		return "is gone: " + m.Reason
	case !known:
		return "has joined with " + describeDevices(m.Profile)
	case was.epoch != m.ProcessEpoch:
		return "was started again and is back with " + describeDevices(m.Profile)
	case was.state == consensus.Gone:
		return "is back"
	case m.State == consensus.Draining && was.state != consensus.Draining:
		text := "is leaving"
		if m.Reason != "" {
			text += ": " + m.Reason
		}
		if m.GraceS > 0 {
			text += fmt.Sprintf(", within %s", plan.Duration(time.Duration(m.GraceS)*time.Second))
		}
		return text
	}
	return ""
}

// describeDevices names what a member computes on, with its speed.
func describeDevices(p plan.Profile) string {
	var all []string
	for _, d := range p.Devices {
		all = append(all, fmt.Sprintf("%s (%s)", plan.DeviceTitle(p.Devices, d.Name), plan.Speed(d.MatMulFLOPS)))
	}
	return strings.Join(all, ", ")
}

// kindOf describes devices by their products alone.
func kindOf(p plan.Profile) string {
	var all []string
	for _, d := range p.Devices {
		all = append(all, cmp.Or(d.Product(), d.Name))
	}
	return strings.Join(all, ", ")
}

// RosterChanged publishes what changed among the members since the last call, and who computes a lost one's part. Only the run
// loop calls it.
func (m *Monitor) RosterChanged(state consensus.State) {
	m.departed.look(m.roster, state)
	for _, text := range m.roster.news(state, m.Self) {
		m.Publish(api.Event{Kind: api.KindMember, Generation: state.Plan.Generation, Message: text})
	}
	before, now := m.substitute, state.Substitute
	if m.substitute = now; now != nil && (before == nil || *before != *now) {
		m.Publish(substituteEvent(state, m.steps.current()))
	}
}

// Follow notes of which lineage the log is, and publishes the rulings on faults that are new in it. Only the run loop calls it. A node that
// comes later shows those of before in its status alone.
func (m *Monitor) Follow(state consensus.State) {
	m.steps.follow(state.Partings)
	if o := m.outer.follow(state, m.Beats, m.Self, time.Now()); o != nil {
		m.Publish(outerEvent(*o))
	}
	for _, b := range newRulings(m.rulings, state.Blames) {
		m.Publish(api.Event{Kind: api.KindError, Generation: b.Generation, Step: b.Step, Message: rulingText(state, b)})
	}
	m.rulings = state.Blames
	if m.rulings == nil {
		m.rulings = []consensus.Blame{}
	}
}

// departures holds since when members are gone, as this process saw it. Its methods may be called concurrently.
type departures struct {
	mu    sync.Mutex // guards since
	since map[plan.PeerID]time.Time
}

// look takes in the members that are gone now and were not at the last look.
func (d *departures) look(before roster, state consensus.State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range state.Members {
		was, known := before[m.Peer]
		switch {
		case m.State != consensus.Gone:
			delete(d.since, m.Peer)
		case known && was.state != consensus.Gone:
			if d.since == nil {
				d.since = map[plan.PeerID]time.Time{}
			}
			d.since[m.Peer] = time.Now()
		}
	}
}

// all returns since when each is gone.
func (d *departures) all() map[plan.PeerID]time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.since)
}
