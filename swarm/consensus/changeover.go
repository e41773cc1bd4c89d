package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"pnode/planner/plan"
)

// ChangeOver tells of a change to another lineage of the log.
type ChangeOver struct {
	// Recovery begins the lineage; nil is the one that the run was founded with.
	Recovery *Recovery
	// Discarded reports that this node's log of before is given up, with what it says of the time since the lineages parted.
	Discarded bool
	// Before was the state here, as far as its log went.
	Before State
}

// ChangedOver returns the newest change to another lineage since this node was started; ok is false without one.
func (y *Recoverer) ChangedOver() (c ChangeOver, ok bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.last == nil {
		return ChangeOver{}, false
	}
	return *y.last, true
}

// changeOver gives raft up and starts it again in another lineage. The state stays as it is until the lineage's comes.
func (y *Recoverer) changeOver(next lineage) error {
	n := y.node
	now := n.lineage.get()
	if next.id() == now.id() {
		return nil
	}
	before, err := y.Logged()
	if err != nil {
		return err
	}
	term, index := y.end()
	next.Pending = now.conversion(next, n.self, term, index)
	old := &ChangeOver{Recovery: next.Recovery, Discarded: next.Pending == discarded, Before: before}
	n.config.Logger.Info("consensus: another lineage of the log", "number", next.number(), "discarded", old.Discarded)
	n.mu.Lock()
	n.changing = true // proposals wait: raft answers those under way while it runs
	n.mu.Unlock()
	n.applies.Wait()
	e := n.engine.Load()
	e.layer.Close()
	y.mu.Lock()
	y.last, y.apart, y.tellsApart = old, "", false
	y.mu.Unlock()
	if err := errors.Join(e.raft.Shutdown().Error(), n.lineage.put(next)); err != nil {
		return err
	}
	e.isolate()
	n.mu.Lock()
	n.led = 0
	n.silence.begin(time.Now())
	n.reign.take("", time.Now())
	n.mu.Unlock()
	if err := n.startRaft(); err != nil {
		return err // this node fails: a raft that is shut down is given no proposals
	}
	n.mu.Lock()
	n.changing = false
	n.mu.Unlock()
	n.broadcast()
	return nil
}

// settle finishes what a change to another lineage has begun, before raft is started.
func (y *Recoverer) settle(conf *raft.Config) error {
	n := y.node
	l := n.lineage.get()
	switch l.Pending {
	case kept:
		return nil
	case discarded:
		if err := n.lineage.discard(); err != nil {
			return err
		}
		if n.State().Run != nil {
			n.machine.replay(l.Index)
		}
	case founded:
		if err := y.recoverAlone(conf); err != nil {
			return fmt.Errorf("consensus: recover the log: %w", err)
		}
	}
	l.Pending = kept
	return n.lineage.put(l)
}

// Logged returns the state here or, where no leader says what of the log is committed, the state by all of the log.
func (y *Recoverer) Logged() (State, error) {
	n := y.node
	leader, _, _ := n.Leader()
	_, end := y.end()
	if s := n.State(); s.Run != nil && (leader != "" || n.engine.Load().raft.AppliedIndex() >= end) {
		return s, nil
	}
	replayed := &machine{author: n.author, changed: func() {}, failed: func(error) {}}
	replayed.state.Store(&State{})
	snapshots := &snapshotStore{kv: n.config.KV}
	head, err := snapshots.head()
	if err == nil && head.Number != 0 {
		var r io.ReadCloser
		if _, r, err = snapshots.Open(head.Meta.ID); err == nil {
			err = replayed.Restore(r)
		}
	}
	if err != nil {
		return State{}, err
	}
	for index := head.Meta.Index + 1; ; index++ {
		var entry raft.Log
		if err := n.store.logStore.GetLog(index, &entry); errors.Is(err, raft.ErrLogNotFound) {
			return *replayed.state.Load(), nil
		} else if err != nil {
			return State{}, err
		}
		if entry.Type == raft.LogCommand {
			replayed.Apply(&entry)
		}
	}
}

// end returns the last entry of the log here.
func (y *Recoverer) end() (term plan.Term, index uint64) {
	n := y.node
	snapshots := &snapshotStore{kv: n.config.KV}
	var last raft.Log
	index, err := n.store.LastIndex()
	if err == nil && index > 0 && n.store.logStore.GetLog(index, &last) == nil {
		return plan.Term(last.Term), index
	}
	head, err := snapshots.head()
	if err != nil {
		return 0, 0
	}
	return plan.Term(head.Meta.Term), head.Meta.Index
}

// recoverAlone makes this node the only voter, with all of its log as committed.
func (y *Recoverer) recoverAlone(conf *raft.Config) error {
	n := y.node
	store := newParking(n.config.KV, func(error) {}, func(time.Duration) {})
	close(store.isolated) // a failure is returned, not waited for
	replayed := &machine{author: n.author, changed: func() {}, failed: func(error) {}}
	replayed.state.Store(&State{})
	_, nowhere := raft.NewInmemTransport(raft.ServerAddress(n.self))
	return raft.RecoverCluster(conf, replayed, store, store, &snapshotStore{kv: n.config.KV}, nowhere, raft.Configuration{
		Servers: []raft.Server{{ID: conf.LocalID, Address: raft.ServerAddress(n.self)}},
	})
}

// seal says in the log, once, that it is of the lineage here. The leader's first entry goes before.
func (y *Recoverer) seal(ctx context.Context) error {
	n := y.node
	l, s := n.lineage.get(), n.State()
	if l.Recovery == nil || l.Recovery.By != n.self || (lineage{Recovery: s.Recovery}).id() == l.id() {
		return nil
	}
	p, err := n.author.sign(s, Recover{*l.Recovery})
	if err == nil {
		err = n.commit(ctx, p.encode())
	}
	if err != nil {
		return fmt.Errorf("consensus: begin lineage %d: %w", l.number(), err)
	}
	return nil
}

// founds reports whether a peer goes on with the run in this node's lineage, whose log has not come here yet.
func (y *Recoverer) founds(peer plan.PeerID, s State) bool {
	l := y.node.lineage.get()
	return l.Recovery != nil && l.Recovery.By == peer && (lineage{Recovery: s.Recovery}).id() != l.id()
}

// inLineage returns what a state says of the voters in this node's lineage: nothing, while the log of the lineage has not
// come here. Then it also returns voters of the lineage that are known all the same: who goes on, or those before a recovery
// that does not count any more.
func (y *Recoverer) inLineage(s State) (State, []plan.PeerID) {
	l := y.node.lineage.get()
	switch {
	case (lineage{Recovery: s.Recovery}).id() == l.id():
		return s, nil
	case l.Recovery != nil:
		s.Vouchers = nil
		return s, []plan.PeerID{l.Recovery.By}
	}
	s.Vouchers = nil
	return s, s.Recovery.Voters
}
