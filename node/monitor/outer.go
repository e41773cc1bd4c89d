package monitor

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"pnode/node/api"
	"pnode/node/gossip"
	"pnode/pipeline/compress"
	"pnode/pipeline/meeting"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/consensus/rounds"
)

// outerPatience is how long after an outer step members are waited for to say how it was.
const outerPatience = 3 * time.Second

// outerWatch follows the outer steps of the log, and what members say of the newest one. Its methods may be called concurrently.
type outerWatch struct {
	mu     sync.Mutex // guards what follows
	looked bool       // at a state: what it had before was shown by a process before
	round  *rounds.Round
	newest *outerMade // nil before the first
	shown  bool       // newest is
}

// outerMade is an outer step of the log.
type outerMade struct {
	state  consensus.State // with its plan
	merged plan.Merged
	out    []rounds.LeftOut
	at     time.Time     // replicas were to make it
	said   api.OuterStep // by what was heard up to now
	heard  bool          // all that was to be heard is in said
}

// follow takes in a state of the log, and returns the outer step before a new one, where it was not shown yet.
func (w *outerWatch) follow(state consensus.State, beats *gossip.Tracker, self plan.PeerID, now time.Time) (late *api.OuterStep) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := state.Merged
	if state.Run == nil {
		return nil
	}
	if m != nil && m.Generation == state.Plan.Generation && len(m.Parts) == len(state.Plan.Replicas) && state.Plan.Local != nil && (w.newest == nil || w.newest.merged.Generation != m.Generation || w.newest.merged.From != m.From) {
		late = w.due(beats, self, now, true)
		w.newest, w.shown = &outerMade{state: state, merged: *m, at: now}, !w.looked
		if w.round != nil && w.round.From == m.From {
			w.newest.out = w.round.LeftOut
		}
	}
	w.looked, w.round = true, state.Round
	return late
}

// due returns the newest outer step where it is not shown yet and all is heard of it that there is to hear, or at once or late enough.
func (w *outerWatch) due(beats *gossip.Tracker, self plan.PeerID, now time.Time, atOnce bool) *api.OuterStep {
	if w.newest == nil || w.shown {
		return nil
	}
	if w.newest.travels(beats) {
		w.newest.at = now
	}
	if w.newest.hear(beats, self); !w.newest.heard && !atOnce && now.Sub(w.newest.at) < outerPatience {
		return nil
	}
	w.shown = true
	said := w.newest.said
	return &said
}

// show returns the newest outer step once, when all is heard of it, or late enough; atOnce: now.
func (w *outerWatch) show(beats *gossip.Tracker, self plan.PeerID, now time.Time, atOnce bool) *api.OuterStep {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.due(beats, self, now, atOnce)
}

// status returns the newest outer step as far as it is known; nil before the first.
func (w *outerWatch) status(beats *gossip.Tracker, self plan.PeerID) *api.OuterStep {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.newest == nil {
		return nil
	}
	w.newest.hear(beats, self)
	said := w.newest.said
	return &said
}

// travels reports whether a replica still makes inner steps before it makes the outer step.
func (o *outerMade) travels(beats *gossip.Tracker) bool {
	m := o.merged
	at := o.state.Plan.Local.MergedAt(m.To, o.state.Run.Train.Steps)
	if m.Last || at == m.To {
		return false
	}
	view := roundView{state: o.state, beats: beats}
	return slices.ContainsFunc(m.Counted(), func(q plan.Replica) bool { return view.inner(q).Step < at })
}

// hear takes in what members say of the outer step now, unless all is known. What was heard before stays.
func (o *outerMade) hear(beats *gossip.Tracker, self plan.PeerID) {
	if o.heard {
		return
	}
	said, heard := o.tell(beats, self)
	if o.said.Drift == nil || said.Drift != nil {
		o.said, o.heard = said, heard
	}
}

// met returns what a replica's members say of the outer step together. whole: all of its stages are in it.
func (o *outerMade) met(r plan.Replica, beats *gossip.Tracker) (all gossip.Met, whole bool) {
	pipe := o.state.Plan.Replicas[r]
	var peers []plan.PeerID
	for _, at := range pipe.Stages {
		if slices.Contains(peers, at.Peer) {
			continue
		}
		peers = append(peers, at.Peer)
		b, _ := beats.Last(at.Peer)
		i := slices.IndexFunc(b.Met, func(m gossip.Met) bool {
			return m.Generation == o.merged.Generation && m.From == o.merged.From && m.Replica == r && len(m.Spread.Squares) == len(o.merged.Parts)
		})
		if i < 0 {
			continue
		}
		m := b.Met[i]
		all.Stages, all.SentBytes = all.Stages+m.Stages, all.SentBytes+m.SentBytes
		all.RoundNanos, all.WaitedNanos, all.HiddenNanos = max(all.RoundNanos, m.RoundNanos), max(all.WaitedNanos, m.WaitedNanos), max(all.HiddenNanos, m.HiddenNanos)
		all.Spread.Add(m.Spread)
	}
	return all, all.Stages == len(pipe.Stages)
}

// tell returns what is known of the outer step. heard: nothing more is to come.
func (o *outerMade) tell(beats *gossip.Tracker, self plan.PeerID) (out api.OuterStep, heard bool) {
	run, p, m := *o.state.Run, o.state.Plan, o.merged
	out = api.OuterStep{Generation: m.Generation, From: m.From, To: m.To}
	out.Bytes, out.EveryStepBytesPerToken = exchanged(run, p)
	tokens, heard := int64(0), true
	var spread *meeting.Spread // all replicas say the same
	var waited, whole, least float64
	for r, part := range m.Parts {
		r := plan.Replica(r)
		said := api.OuterPart{Replica: r, Steps: part.Steps, Why: o.why(r)}
		met, complete := o.met(r, beats)
		if part.Steps > 0 {
			tokens += int64(part.Steps) * int64(p.Replicas[r].Micros*run.Train.MicroBatch*run.Model.Context)
			if heard = heard && complete; complete {
				said.RoundS, said.WaitedS = seconds(met.RoundNanos), seconds(met.WaitedNanos)
				waited, whole = waited+said.WaitedS, whole+said.RoundS
				if least == 0 || said.WaitedS < least {
					least = said.WaitedS
				}
				out.HiddenS = max(out.HiddenS, seconds(met.HiddenNanos))
				if spread == nil {
					spread = &met.Spread
				}
			}
		}
		if b, ok := beats.Last(self); ok {
			for _, own := range b.Met {
				if own.Generation == m.Generation && own.From == m.From && own.Replica == r {
					out.SentBytes += own.SentBytes
				}
			}
		}
		out.Replicas = append(out.Replicas, said)
	}
	out.BytesPerToken = float64(out.Bytes) / float64(max(1, tokens))
	if whole > 0 {
		out.ExchangeS, out.WaitedShare = least, waited/whole
	}
	if spread != nil {
		o.apart(&out, *spread)
	}
	out.Text = o.text(out)
	return out, heard
}

func seconds(nanos int64) float64 { return float64(nanos) / 1e9 }

// exchanged returns how many bytes the messages of a round have that replicas send each other, and how many bytes a token sums of gradients in float32 in
// every step would: each replica sends the others their parts of its gradient, and then the sums of its own part.
func exchanged(run plan.RunSpec, p plan.Plan) (round int64, everyStep float64) {
	codec, err := compress.Parse(p.Local.Codec)
	if err != nil {
		return 0, 0 // of no plan in the log
	}
	gradient := int64(0)
	for layer := range run.Model.Layers() {
		round += int64(meeting.MessageBytes(run.Model, codec, layer))
		gradient += int64(meeting.MessageBytes(run.Model, compress.F32, layer))
	}
	others := int64(len(p.Replicas) - 1)
	return round * others * int64(len(p.Replicas)), float64(2*others*gradient) / float64(tokensPerStep(run))
}

// why says why a replica does not count; empty where it does.
func (o *outerMade) why(r plan.Replica) string {
	if o.merged.Parts[r].Steps > 0 {
		return ""
	}
	if i := slices.IndexFunc(o.out, func(l rounds.LeftOut) bool { return l.Replica == r }); i >= 0 {
		return withNames(o.out[i].Reason, o.state.NameOf)
	}
	var others []string
	for q := range o.merged.Parts {
		q := plan.Replica(q)
		against := func(c plan.Contradiction) bool {
			return c.By == q && c.Of == r || c.By == r && c.Of == q
		}
		if slices.ContainsFunc(o.merged.Contradictions, against) {
			others = append(others, replicaName(o.state, o.state.Plan, q))
		}
	}
	if len(others) > 0 {
		return fmt.Sprintf("it contradicts %s, or they it, on what was sent", some(others))
	}
	return "not all others have the same messages of it"
}

// A replica is far from the others where its outer gradient is farTimes as large as the middle one of all, or as small, or where its cosine is less
// than that part of the middle one. Of two replicas nobody can say which one is small, or whose direction is the odd one.
const farTimes = 3

// apart fills in how far replicas were apart.
func (o *outerMade) apart(out *api.OuterStep, s meeting.Spread) {
	shares := meeting.Weights(o.state.Plan, o.merged)
	drift := s.Drift(shares)
	out.Drift = &drift
	var norms, cosines []float64
	for i := range out.Replicas {
		if p := &out.Replicas[i]; p.Steps > 0 {
			norm, cosine := s.Norm(p.Replica), s.Cosine(p.Replica, float64(shares[i]))
			p.Norm, p.Cosine = &norm, &cosine
			norms, cosines = append(norms, norm), append(cosines, cosine)
		}
	}
	slices.Sort(norms)
	slices.Sort(cosines)
	for i := range out.Replicas {
		p := &out.Replicas[i]
		if p.Norm == nil {
			continue
		}
		norm, cosine := norms[(len(norms)-1)/2], cosines[(len(cosines)-1)/2] // the lower one of two
		few := 2*p.Steps < out.To-out.From                                   // it had less time to go far
		switch {
		case norm > 0 && *p.Norm > farTimes*norm, farTimes**p.Norm < norm && !few:
			p.Far = fmt.Sprintf("what it learned is %s times as large as what most did", figure(*p.Norm/norm))
		case len(norms) > 2 && cosine > 0 && *p.Cosine < cosine/farTimes:
			p.Far = fmt.Sprintf("the cosine of what it learned with what the others did is %s, most have %s", figure(*p.Cosine), figure(cosine))
		}
	}
}

// figure returns a number with two digits that say something.
func figure(x float64) string {
	switch a := math.Abs(x); {
	case a >= 1e6:
		return fmt.Sprintf("%.1e", x)
	case a >= 10:
		return fmt.Sprintf("%.0f", x)
	case a >= 1:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// text says how the outer step was.
func (o *outerMade) text(s api.OuterStep) string {
	who, counted, without, far := plan.Count(len(s.Replicas), "replica"), 0, []string{}, []string{}
	for _, p := range s.Replicas {
		name := replicaName(o.state, o.state.Plan, p.Replica)
		if p.Steps > 0 {
			counted++
		} else {
			without = append(without, fmt.Sprintf("%s: %s", name, p.Why))
		}
		if p.Far != "" {
			far = append(far, fmt.Sprintf("%s is far from the others: %s", name, p.Far))
		}
	}
	if len(without) > 0 {
		who = fmt.Sprintf("%d of %s", counted, who)
	}
	text := fmt.Sprintf("%s of %s", stepsText(s.From, s.To), who)
	if s.Drift != nil {
		text += ", drift " + figure(*s.Drift)
	}
	text += fmt.Sprintf("; %s from each", plan.Size(s.Bytes/int64(len(s.Replicas))))
	if s.WaitedShare > 0 {
		text += fmt.Sprintf(" in %s; replicas stood still for %.1f%% of the round", plan.Duration(int64(s.ExchangeS*1e9)), 100*s.WaitedShare)
	}
	if len(without) > 0 {
		text += "; without " + some(without)
	}
	if len(far) > 0 {
		text += "; " + some(far)
	}
	return text
}

// outerEvent returns the event of an outer step.
func outerEvent(o api.OuterStep) api.Event {
	return api.Event{Kind: api.KindOuter, Generation: o.Generation, Step: o.To, Message: o.Text, Outer: &o}
}
