package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/node/plain"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// deliveryView is the input to deliveryOf, all of it plain values.
type deliveryView struct {
	State consensus.State
	// Copies say which checkpoint members keep whole, as they last said.
	Copies map[plan.PeerID]plan.WholeCopy
	// Waited is how long this node has known that the run is finished.
	Waited time.Duration
	// Leaving: somebody asked this node to go.
	Leaving bool
	Self    plan.PeerID
}

// delivery says whether the finished model is where it belongs.
type delivery struct {
	// Over: this node need not stay for it. Settled: an owner has it, or none wants it.
	Over, Settled bool
	// At is a member that has the whole model, an owner if one does; empty for none. Self is preferred to others.
	At plan.PeerID
	// Awaited are the owners that lack it.
	Awaited []plan.PeerID
}

// deliveryOf is the rule of the end of a finished run: its nodes stay until an owner has the whole model. They wait no
// longer than the run's settings say, nor where the owners that are there were told to keep none, nor where they have no
// room for it and another member keeps it. Who is asked to leave stays only where nobody else holds one of its layers.
func deliveryOf(v deliveryView) delivery {
	final := v.State.Checkpoint
	has := func(p plan.PeerID) bool { return v.Copies[p].Has(final.Step, final.Generation) }
	var d delivery
	var declined, able, unable bool // of the owners that are there
	for _, o := range v.State.Owners {
		m, member := v.State.Member(o)
		there := member && m.State != consensus.Gone
		switch c := v.Copies[o]; {
		case has(o):
			d.Settled = true
		case c.Off:
			declined = true
		default:
			d.Awaited = append(d.Awaited, o)
			able, unable = able || there && c.Why == "", unable || there && c.Why != ""
		}
	}
	for _, m := range v.State.Members {
		owner := v.State.Owner(m.Peer)
		if has(m.Peer) && (d.At == "" || owner && !v.State.Owner(d.At)) && d.At != v.Self || has(m.Peer) && m.Peer == v.Self {
			d.At = m.Peer
		}
	}
	d.Settled = d.Settled || !able && (declined && !unable || unable && d.At != "")
	limit := time.Duration(v.State.Run.Train.AwaitOwnerS) * time.Second
	d.Over = d.Settled || v.Waited >= limit || v.Leaving && heldByOthers(v.State, v.Self)
	return d
}

// serve keeps this node in a finished run until an owner has the model, or nobody waits for that any more.
func (l *loop) serve(ctx context.Context, state consensus.State) (delivery, error) {
	begun, asked := time.Now(), l.exit.leaving
	look := func() delivery {
		v := deliveryView{State: state, Self: l.self, Waited: time.Since(begun), Leaving: asked, Copies: map[plan.PeerID]plan.WholeCopy{l.self: l.custody.whole.Copy()}}
		for _, m := range state.Members {
			if m.Peer != l.self {
				v.Copies[m.Peer] = l.heartbeats.Whole(m.Peer)
			}
		}
		return deliveryOf(v)
	}
	tick := time.NewTicker(gossip.Every / 4)
	defer tick.Stop()
	defer l.monitor.SetServing("")
	for {
		d := look()
		if d.Over || l.exit.overdue(time.Now()) {
			l.sendHeartbeat() // the others may wait for what it says of this node's copy
			return d, nil
		}
		if err := l.checkRemoved(state); err != nil {
			return d, err
		}
		l.machine.to(Serving)
		text := l.servingText(state, d, begun, asked)
		l.monitor.SetServing(text)
		if asked && text != l.exit.shown {
			l.exit.shown = text
			l.monitor.Publish(api.Event{Kind: api.KindDrain, Generation: state.Plan.Generation, Step: state.Checkpoint.Step, Message: text})
		}
		changed := l.raft.Changed()
		state = l.raft.State() // members come back and go
		select {
		case <-ctx.Done():
			return d, context.Cause(ctx)
		case err := <-l.broken:
			return d, err
		case why := <-l.leaving:
			asked = true
			l.exit.ask(why, time.Now())
		case <-changed:
		case <-tick.C:
		}
	}
}

// servingText says why a node of a finished run stays, until when, and what ends that.
func (l *loop) servingText(state consensus.State, d delivery, begun time.Time, asked bool) string {
	var names []string
	for _, o := range d.Awaited {
		names = append(names, state.NameOf(o))
	}
	until := plain.Moment(begun.Add(time.Duration(state.Run.Train.AwaitOwnerS)*time.Second), begun, "15:04 MST")
	text := fmt.Sprintf("the run is finished at step %d; this node stays until its owner, %s, has the whole model, at most until %s",
		state.Checkpoint.Step, strings.Join(names, " or "), until)
	if slices.Contains(d.Awaited, l.self) {
		text = fmt.Sprintf("the run is finished at step %d; the layers that other nodes hold are on their way here, until %s", state.Checkpoint.Step, until)
	}
	if d.At == l.self {
		text += fmt.Sprintf("; it is whole here: `pnode export OUT --dir %s` works already", plain.Quote(l.dir))
	}
	if asked {
		text += "; nobody else has all of its layers, so that it does not leave before"
	}
	return text
}

// whereText says where the finished model is, and how to use it.
func (l *loop) whereText(state consensus.State, d delivery) string {
	step := state.Checkpoint.Step
	switch {
	case d.At == l.self:
		dir, further := plain.Quote(l.dir), ""
		if state.Owner(l.self) {
			further = fmt.Sprintf("; to train it further: `pnode train --resume --steps %d --dir %s`", furtherSteps(step), dir)
		}
		return fmt.Sprintf("the whole model of step %d is here: `pnode generate --dir %s --prompt TEXT` or `pnode export OUT --dir %s`%s", step, dir, dir, further)
	case d.At != "":
		return fmt.Sprintf("the whole model of step %d is on %s: there `pnode generate --prompt TEXT` or `pnode export OUT`", step, state.NameOf(d.At))
	case d.Settled:
		return fmt.Sprintf("the model of step %d is in the folders of the nodes together: bring them to one machine for `pnode export OUT`", step)
	}
	return fmt.Sprintf("no machine has the whole model of step %d: start its nodes again, this one by `pnode join --dir %s`, the owner's by `pnode train --resume`, which then fetches all layers",
		step, plain.Quote(l.dir))
}
