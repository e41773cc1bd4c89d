package generation

import (
	"context"
	"encoding/json"
	"fmt"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// apply changes the log's state, whoever may propose the entry.
func (r *rig) apply(e consensus.Entry) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := consensus.Apply(r.state, e)
	if err != nil {
		r.Fatal(err)
	}
	r.note(e, next)
	r.set(next)
}

// note keeps the outer step that an entry completes; the caller holds mu.
func (r *rig) note(e consensus.Entry, next consensus.State) {
	if next.Merged == nil || r.state.Merged != nil && r.state.Merged.From == next.Merged.From && r.state.Plan.Generation == next.Plan.Generation {
		return
	}
	made := outerStep{Merged: *next.Merged, plan: next.Plan}
	for _, out := range r.state.Round.LeftOut {
		made.out = append(made.out, out.Replica)
	}
	if out, last := e.(consensus.LeaveOut); last {
		made.out = append(made.out, out.Replica)
	}
	r.made = append(r.made, made)
}

// set takes a state over; the caller holds mu.
func (r *rig) set(s consensus.State) {
	r.state = s
	close(r.changed)
	r.changed = make(chan struct{})
}

// now returns the log's state.
func (r *rig) now() consensus.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// changes returns a channel that is closed when the log's state changes.
func (r *rig) changes() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// answer serves the requests of a protocol.
type answer func(ctx context.Context, from plan.PeerID, request []byte) ([]byte, error)

// logOf is the log, and the way to the others, of one member.
type logOf struct {
	*rig
	self plan.PeerID
}

func (l logOf) State() consensus.State { return l.now() }

func (l logOf) Changed() <-chan struct{} { return l.changes() }

func (l logOf) Leader() (plan.PeerID, plan.Term, bool) {
	leader := l.net.Peers()[0]
	return leader, 1, l.self == leader
}

func (l logOf) Propose(_ context.Context, e consensus.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := consensus.Authorize(l.state, consensus.Author{Peer: l.self, Term: 1}, e); err != nil {
		return err
	}
	next, err := consensus.Apply(l.state, e)
	if err == nil {
		l.note(e, next)
		l.set(next)
	}
	return err
}

func (l logOf) Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error) {
	data, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	f := l.answers[peer][protocol]
	l.mu.Unlock()
	if f == nil {
		return nil, fmt.Errorf("%s does not answer", peer.Short())
	}
	return f(ctx, l.self, data)
}

func (l logOf) Serve(protocol string, f func(context.Context, plan.PeerID, []byte) ([]byte, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answers[l.self] == nil {
		l.answers[l.self] = map[string]answer{}
	}
	l.answers[l.self][protocol] = f
}

// mute has a member answer no requests any more.
func (m *member) mute() {
	m.rig.mu.Lock()
	defer m.rig.mu.Unlock()
	delete(m.answers, m.parts.Self)
}
