package monitor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// A node without a part in the plan reads the steps in the log of a node that has one, after its
// heartbeat said that there are new ones. So every node shows the same steps with the same losses.

const (
	protocolSteps = "/pnode/steps/1"
	// askTimeout bounds one question to one node, mostAsked the nodes of one round.
	askTimeout = 3 * time.Second
	mostAsked  = 8
	// stepsPatience bounds how long steps are held back for older ones that nobody has.
	stepsPatience = 5 * time.Second
	// longestPause bounds the time between rounds of questions that bring nothing, which doubles from gossip.Every.
	longestPause = 8 * time.Second
)

var errBadSteps = errors.New("monitor: bad list of steps")

// decodeSteps reads another log's answer: at most maxLogged steps in the order of their positions.
func decodeSteps(data []byte) ([]api.Event, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("%w: no list", errBadSteps)
	}
	var events []api.Event
	for d.More() {
		var e api.Event
		if err := d.Decode(&e); err != nil {
			return nil, fmt.Errorf("%w: %w", errBadSteps, err)
		}
		switch n := len(events); {
		case n == maxLogged:
			return nil, fmt.Errorf("%w: more than %d", errBadSteps, maxLogged)
		case e.Kind != api.KindStep || e.Message != "" || e.Interruption != nil || e.Outer != nil:
			return nil, fmt.Errorf("%w: an event of another kind", errBadSteps)
		case n > 0 && positionOf(events[n-1]).compare(positionOf(e)) >= 0:
			return nil, fmt.Errorf("%w: step %d of generation %d is out of order", errBadSteps, e.Step, e.Generation)
		}
		events = append(events, e)
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("%w: %w", errBadSteps, err)
	}
	return events, nil
}

// answerSteps answers a member with the steps since a position.
func (m *Monitor) answerSteps(_ context.Context, _ plan.PeerID, request []byte) ([]byte, error) {
	var p position
	if err := strict.Decode(request, &p); err != nil {
		return nil, fmt.Errorf("%w: %w", errBadSteps, err)
	}
	var newer []api.Event
	m.steps.with(func(l *stepLog) { newer = l.since(p) })
	return json.Marshal(newer)
}

// FollowSteps reads the steps that this node's own workers do not report, until ctx ends.
func (m *Monitor) FollowSteps(ctx context.Context) {
	var owing time.Time // since when older steps are waited for
	var asking pace
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.Beats.News():
		}
		if owing.IsZero() && m.steps.logged().owed != 0 {
			asking = pace{} // for other steps than those that nobody had
		}
		if state := m.Consensus.State(); m.lacksSteps(state) && asking.due(time.Now()) {
			before := m.steps.logged().end
			wait := m.readSteps(ctx, state)
			asking.asked(m.steps.logged().end != before, time.Now())
			asking.next = asking.next.Add(wait)
		}
		switch now := time.Now(); {
		case m.steps.logged().owed == 0:
			owing = time.Time{}
		case owing.IsZero():
			owing = now
		case now.Sub(owing) > stepsPatience:
			m.steps.with(func(l *stepLog) { l.giveUp() })
		}
	}
}

// pace spreads questions that bring nothing, as where a heartbeat told of steps that nobody has.
type pace struct {
	next  time.Time
	pause time.Duration
}

func (p *pace) due(now time.Time) bool { return !now.Before(p.next) }

// asked notes the end of a round of questions, and whether it brought something.
func (p *pace) asked(useful bool, now time.Time) {
	if p.pause = min(max(2*p.pause, gossip.Every), longestPause); useful {
		p.pause = 0
	}
	p.next = now.Add(p.pause)
}

// lacksSteps reports whether others have steps that this node's workers will not report.
func (m *Monitor) lacksSteps(state consensus.State) bool {
	newest := position{state.Plan.Generation, m.Beats.Newest(state.Plan, time.Now())}
	me, member := state.Member(m.Self)
	inTime := member && me.ProcessEpoch == m.Epoch && !state.Reborn(me)
	news := newest.Step > state.Plan.Start
	if news && !inTime {
		m.steps.with(func(l *stepLog) { l.beginLate(newest) })
	}
	ours := inTime && state.Plan.Places(m.Self) && state.Plan.Local == nil // to be reported by this node's own workers, all of which take commits
	have := m.steps.logged()
	return have.owed != 0 || news && have.begun && !ours && have.end.compare(newest) < 0
}

// readSteps asks for the steps since the end of the log: first the nodes that compute them. It returns for how long this node then waits
// at least, one of many that ask.
func (m *Monitor) readSteps(ctx context.Context, state consensus.State) (wait time.Duration) {
	wait, peers := gossip.Spread(state, m.Self, append([]plan.PeerID{state.Substitute.Coordinator(state.Plan)}, state.Plan.Peers()...))
	m.askEach(ctx, append(peers, m.Living()...), func(ctx context.Context, p plan.PeerID) (enough bool, err error) {
		reply, err := m.Peers.Ask(ctx, p, protocolSteps, m.steps.logged().end)
		if err != nil {
			return false, err
		}
		events, err := decodeSteps(reply)
		if err != nil {
			return false, err
		}
		if n := len(events); n > 0 && !possible(state, positionOf(events[n-1])) {
			return false, fmt.Errorf("%w: step %d of generation %d, which is not yet", errBadSteps, events[n-1].Step, events[n-1].Generation)
		}
		m.steps.merge(events, state.Partings)
		return !m.lacksSteps(state), nil
	})
	return wait
}

// possible reports whether a run may have done a step: what comes after it would never be shown.
func possible(s consensus.State, p position) bool {
	return p.Generation <= s.Plan.Generation && (s.Run == nil || p.Step <= s.Run.Train.Steps)
}

// askEach asks distinct peers one after the other until one's answer is enough, and reports
// whether one was.
func (m *Monitor) askEach(ctx context.Context, peers []plan.PeerID, ask func(context.Context, plan.PeerID) (enough bool, err error)) bool {
	asked := []plan.PeerID{m.Self, ""}
	for _, p := range peers {
		if slices.Contains(asked, p) || len(asked) > mostAsked {
			continue
		}
		asked = append(asked, p)
		limited, cancel := context.WithTimeout(ctx, askTimeout)
		enough, err := ask(limited, p)
		cancel()
		if enough {
			return true
		}
		if err != nil {
			m.Log.Debug("ask for steps", "peer", p, "cause", err)
		}
	}
	return false
}

// CatchUp reads what the run did up to its newest checkpoint and this node has not logged yet,
// before it stops.
func (m *Monitor) CatchUp(ctx context.Context, state consensus.State) {
	ctx, cancel := context.WithTimeout(ctx, stepsPatience)
	defer cancel()
	tick := time.NewTicker(gossip.Every / 4)
	defer tick.Stop()
	for ctx.Err() == nil {
		if have := m.steps.logged(); !have.begun || have.end.Step >= state.Checkpoint.Step {
			break
		}
		m.readSteps(ctx, state)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	m.steps.with(func(l *stepLog) { l.giveUp() })
}
