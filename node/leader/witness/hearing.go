package witness

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"pnode/node/leader/blame"
	"pnode/node/outersteps"
	"pnode/pipeline/gather/seals"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// answerTimeout is for how long one coordinator is asked, again every againAfter where nothing comes of it.
	answerTimeout = 4 * time.Second
	againAfter    = time.Second
	// patience bounds a hearing: whoever could not be asked for answerTimeout of it is not asked, since its silence would say nothing.
	patience = 4 * answerTimeout
	// mostOpen bounds the contradictions of a hearing that lead to nobody.
	mostOpen = 8
)

// Config says how coordinators are asked. Ask may be nil: then nobody answers.
type Config struct {
	// Ask has a member show what its coordinator has; an error that wraps outersteps.ErrNothing is its answer.
	Ask  func(ctx context.Context, peer plan.PeerID, q outersteps.Question) (seals.Exhibit, error)
	Keys seals.Keys
	Log  *slog.Logger
}

// Hearings hold the newest one. The zero value has had none. Its methods may be called concurrently.
type Hearings struct {
	work  sync.WaitGroup
	mu    sync.Mutex // guards the rest
	of    round
	found []plan.Contradiction
	heard []blame.Heard
	over  bool
}

type round struct {
	generation plan.Generation
	from       plan.Step
}

// Of returns what has come of the contradictions of a round, once all of it has; over is false until then. It begins the hearing, which calls wake at its end.
func (h *Hearings) Of(ctx context.Context, c Config, s consensus.State, from plan.Step, found []plan.Contradiction, wake func()) (heard []blame.Heard, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := round{s.Plan.Generation, from}
	if h.of == of && slices.Equal(h.found, found) {
		return h.heard, h.over
	}
	h.of, h.found, h.heard, h.over = of, found, nil, false
	h.work.Go(func() {
		all := c.hear(ctx, s, from, found)
		h.mu.Lock()
		if h.of == of && slices.Equal(h.found, found) {
			h.heard, h.over = all, true
		}
		h.mu.Unlock()
		wake()
	})
	return nil, false
}

// Wait blocks until no hearing is under way.
func (h *Hearings) Wait() { h.work.Wait() }

// hearing is one under way.
type hearing struct {
	Config
	state consensus.State
	round seals.Round
	// guilty were found out, open counts contradictions that led to nobody.
	guilty []plan.PeerID
	open   int
}

// hear asks about one contradiction after the other.
func (c Config) hear(ctx context.Context, s consensus.State, from plan.Step, found []plan.Contradiction) (all []blame.Heard) {
	began := time.Now()
	h := hearing{Config: c, state: s, round: seals.Of(*s.Run, s.Plan, s.Partings.Of(s.Plan.Generation), from)}
	for _, d := range found {
		if h.open < mostOpen && time.Since(began) <= patience-answerTimeout && !h.follows(d) {
			all = append(all, h.one(ctx, d))
		}
	}
	return all
}

// follows reports whether who was found out before can have brought a contradiction about.
func (h *hearing) follows(d plan.Contradiction) bool {
	by, of := h.coordinator(d.By), h.coordinator(d.Of)
	return slices.ContainsFunc(h.guilty, func(p plan.PeerID) bool {
		return p == by || p == of || slices.ContainsFunc(h.state.Plan.Replicas[d.Of].Stages, func(at plan.Placement) bool { return at.Peer == p })
	})
}

func (h *hearing) coordinator(q plan.Replica) plan.PeerID {
	return h.state.Substitute.Carrier(plan.CoordinatorOf(h.state.Plan, q).Peer)
}

// one asks both coordinators of a contradiction, or the one that says that the other had ended the round before it might.
func (h *hearing) one(ctx context.Context, d plan.Contradiction) blame.Heard {
	heard := blame.Heard{Contradiction: d}
	var has, sent seals.Exhibit
	hasty := heard.Hasty()
	var work sync.WaitGroup
	work.Go(func() { has, heard.ByShows = h.show(ctx, d.By, d.Of, d.Has) })
	if hasty {
		heard.OfShows = blame.Proven // it has said nothing that it could be asked for
	} else {
		work.Go(func() { sent, heard.OfShows = h.show(ctx, d.Of, d.Of, d.Sent) })
	}
	work.Wait()
	if hasty && heard.ByShows == blame.Proven && has.SealSum() != d.Seal {
		heard.ByShows = blame.Untrue // it had no seal, or has one from after the close alone
	}
	before := len(h.guilty)
	switch proven := heard.ByShows == blame.Proven && heard.OfShows == blame.Proven; {
	case proven && hasty:
		h.guilty = append(h.guilty, h.round.Sender(seals.Message{Replica: d.Of, Layer: seals.Losses}).Peer)
	case proven:
		heard.Twofold = h.round.Twofold(has, sent, d.Of)
		h.guilty = append(h.guilty, heard.Twofold...)
	}
	if heard.ByShows == blame.Untrue {
		h.guilty = append(h.guilty, h.coordinator(d.By))
	}
	if heard.OfShows == blame.Untrue {
		h.guilty = append(h.guilty, h.coordinator(d.Of))
	}
	if len(h.guilty) == before {
		h.open++
	}
	return heard
}

// show asks a replica's coordinator for what it has told the log that it has of another.
func (h *hearing) show(ctx context.Context, by, of plan.Replica, said plan.Part) (e seals.Exhibit, shows blame.Shown) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	again := time.NewTicker(againAfter)
	defer again.Stop()
	peer, q := h.coordinator(by), outersteps.Question{Generation: h.state.Plan.Generation, From: h.round.From, By: by, Of: of}
	for h.Ask != nil && ctx.Err() == nil {
		e, err := h.Ask(ctx, peer, q)
		if err == nil {
			err = h.round.Shows(h.Keys, e, of, said)
			shows = blame.Untrue
		}
		if err == nil {
			return e, blame.Proven
		}
		h.Log.Info("a coordinator does not show what it has told the log", "peer", peer, "replica", by, "of", of, "cause", err)
		if shows == blame.Untrue || errors.Is(err, outersteps.ErrNothing) {
			return e, blame.Untrue
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
	return e, blame.Silent
}
