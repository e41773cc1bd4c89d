package node

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"pnode/node/checkpointer"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/neterr"
)

// handover follows what a node that leaves still has to give to the others. The data plane counts; all else is the loop's.
type handover struct {
	of   checkpointer.ID // the checkpoint that is handed over
	only []int           // layers of it that nobody else had
	was  plan.Plan       // the newest that places this node
	lost int64           // of what its replicas have for themselves

	mu     sync.Mutex // guards what follows
	served map[plan.Hash]int64
	begun  time.Time // of the first chunk
}

// count returns a source of chunks which notes what is given away once this node leaves.
func (h *handover) count(chunk link.ChunkFunc) link.ChunkFunc {
	return func(name plan.Hash) ([]byte, error) {
		data, err := chunk(name)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.served != nil && err == nil {
			if len(h.served) == 0 {
				h.begun = time.Now()
			}
			h.served[name] = int64(len(data))
		}
		return data, err
	}
}

// busyWithout returns a source of chunks which is busy where this node has no files or memory left to read one: it may well be here.
func busyWithout(chunk link.ChunkFunc) link.ChunkFunc {
	return func(name plan.Hash) ([]byte, error) {
		data, err := chunk(name)
		if neterr.Exhausted(err) {
			err = fmt.Errorf("%w: %w", link.ErrBusy, err)
		}
		return data, err
	}
}

// busy reports whether another one refused a chunk that it may well have.
func busy(err error) bool { return errors.Is(err, link.ErrBusy) }

// begin has chunks counted from now on.
func (h *handover) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.served == nil {
		h.served = map[plan.Hash]int64{}
	}
}

// drainView describes a node's way out: plain values.
type drainView struct {
	Why  string
	Step plan.Step // that is handed over; 0 while it is not saved yet
	// Steps: this node makes steps. Saving: it has made its last, which is not saved yet.
	Steps, Saving bool
	// Votes: the others are no majority without this node's vote, which it has not given away yet.
	Votes bool
	// Bytes of state that nobody else has; Done of them have gone to others.
	Bytes, Done int64
	// Round: a replica with local steps here is in one, which began after step From. The others have what it learns in that with the outer step.
	Round bool
	From  plan.Step
	// Lost counts the bytes that replicas with local steps here have for themselves: nobody gets a copy.
	Lost      int64
	BytesPerS float64 // of what has gone, or else of the best line; 0 is not known
	Left      time.Duration
	Deadline  bool // Left is known
	// Paused: no majority of the run's voters answers, so that no plan can follow.
	Paused bool
}

// view returns how far the way out has come.
func (h *handover) view(s consensus.State, self plan.PeerID, line float64, now time.Time) drainView {
	v := drainView{BytesPerS: line, Lost: h.goesAlong(s, self)}
	if s.Plan.Places(self) && !s.Ended() {
		v.Bytes = ownState(s, self)
		if s.Plan.Local != nil && s.Round != nil {
			v.Round, v.From = true, s.Round.From
		}
		return v
	}
	if id := checkpointer.IDOf(s.Checkpoint); h.of != id {
		h.of, h.only = id, onlyAt(s, self)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	v.Step = h.of.Step
	lacking, gone := onlyAt(s, self), int64(0)
	for _, layer := range h.only {
		l, there := s.Checkpoint.Layers[layer], int64(0)
		for _, c := range l.Chunks {
			there += h.served[c]
		}
		gone += min(there, l.SizeBytes)
		if !slices.Contains(lacking, layer) {
			there = l.SizeBytes
		}
		v.Bytes += l.SizeBytes
		v.Done += min(there, l.SizeBytes)
	}
	if took := now.Sub(h.begun).Seconds(); !h.begun.IsZero() && took > 0.1 {
		v.BytesPerS = float64(gone) / took
	}
	return v
}

// goesAlong returns the bytes of what replicas with local steps have for themselves that nobody has once a member has left. While it computes such
// a replica that is all of it: what others may have of an older checkpoint is not what it has now. The plan without it says whether anybody goes on with it.
func (h *handover) goesAlong(s consensus.State, self plan.PeerID) int64 {
	switch {
	case s.Plan.Places(self):
		h.was = s.Plan
	case h.was.Generation == 0:
		return aloneAt(s, self)
	case s.Plan.Generation > h.was.Generation+1:
		return h.lost // by now others' replicas have its numbers
	}
	h.lost = 0
	if h.was.Local == nil {
		return 0
	}
	for r, pipe := range h.was.Replicas {
		for _, at := range pipe.Stages {
			for layer := at.Layers.First; layer < at.Layers.End; layer++ {
				if at.Peer == self && !wentOn(s, self, h.was.Generation, plan.Replica(r), layer) {
					_, own := pipeline.LocalStateBytes(*s.Run, h.was.Local.Codec, layer)
					h.lost += int64(own)
				}
			}
		}
	}
	return h.lost
}

// wentOn reports whether others go on with what a replica of a plan had for itself of a layer: the next plan's, or the holders of a copy that the next plan may
// begin with.
func wentOn(s consensus.State, self plan.PeerID, of plan.Generation, r plan.Replica, layer int) bool {
	if s.Plan.Generation > of {
		return slices.ContainsFunc(s.Plan.Replicas, func(pipe plan.Pipeline) bool {
			return pipe.Own != nil && pipe.Own.Replica == r && !pipe.Own.Copied
		})
	}
	return s.Ended() && slices.ContainsFunc(s.Checkpoint.Own, func(o consensus.OwnState) bool {
		return o.Replica == r && slices.ContainsFunc(o.Layers, func(l consensus.LayerRef) bool { return l.Layer == layer && heldElsewhere(s, l, self) })
	})
}

// onlyAt returns the layers of the newest checkpoint that no other member of the run is known to have.
func onlyAt(s consensus.State, self plan.PeerID) (only []int) {
	for i, l := range s.Checkpoint.Layers {
		if slices.Contains(l.Holders, self) && !heldElsewhere(s, l, self) {
			only = append(only, i)
		}
	}
	return only
}

// aloneAt returns the bytes of what replicas with local steps had for themselves at the newest checkpoint that no other member of the run is known to have.
func aloneAt(s consensus.State, self plan.PeerID) (bytes int64) {
	for _, o := range s.Checkpoint.Own {
		for _, l := range o.Layers {
			if slices.Contains(l.Holders, self) && !heldElsewhere(s, l, self) {
				bytes += l.SizeBytes
			}
		}
	}
	return bytes
}

// ownState returns the bytes of state on a member's devices that no active member has in another replica.
func ownState(s consensus.State, self plan.PeerID) (bytes int64) {
	for layer := range s.Run.Model.Layers() {
		mine, others := false, false
		for _, pipe := range s.Plan.Replicas {
			for _, p := range pipe.Stages {
				if p.Layers.First <= layer && layer < p.Layers.End {
					m, _ := s.Member(p.Peer)
					mine = mine || p.Peer == self
					others = others || p.Peer != self && m.State == consensus.Active && !s.Plan.InParts(layer)
				}
			}
		}
		if mine && !others {
			bytes += int64(pipeline.LayerStateBytes(*s.Run, layer))
		}
	}
	return bytes
}

// eta returns how long the rest takes; 0 where that is not known.
func (v drainView) eta() time.Duration {
	if v.BytesPerS <= 0 {
		return 0
	}
	return time.Duration(float64(v.Bytes-v.Done) / v.BytesPerS * float64(time.Second))
}

// tooLate reports whether what this node has cannot go to others in time, as far as is known.
func (v drainView) tooLate(parting time.Duration) bool {
	return v.Deadline && v.Bytes > v.Done && v.eta() > v.Left-parting
}

// late tells people what did not go to others in time.
func (v drainView) late() string {
	if v.Bytes == 0 && v.Round {
		return fmt.Sprintf("the round after step %d did not end in time", v.From)
	}
	return fmt.Sprintf("%.1f of %s went to others in time", float64(v.Done)/1e6, megabytes(v.Bytes))
}

// settled reports whether others have all that this node has.
func (v drainView) settled() bool {
	return !v.Votes && !v.Round && (v.Bytes == 0 || v.Step > 0 && v.Done >= v.Bytes)
}

// text tells people how far the way out has come.
func (v drainView) text() string {
	left, vote := "", ""
	if v.Votes {
		vote = ", and its vote follows: were this node killed before, they would wait for it"
	}
	if v.Lost > 0 {
		left = fmt.Sprintf(", but for the state of its replica's optimizer, %s of which there is no copy: another replica's takes its place", megabytes(v.Lost))
	}
	if v.Deadline {
		left += fmt.Sprintf("; %s left", plan.Duration(v.Left.Round(time.Second)))
	}
	switch {
	case v.Bytes == 0 && v.Round:
		return fmt.Sprintf("leaving (%s): the round after step %d ends first, for others to have what this node has learned in it%s%s", v.Why, v.From, vote, left)
	case v.Bytes == 0:
		return fmt.Sprintf("leaving (%s): others have all that this node has%s%s", v.Why, vote, left)
	case v.Step == 0 && v.Steps:
		return fmt.Sprintf("leaving (%s): %s to hand over once the newest step has ended and is saved%s", v.Why, megabytes(v.Bytes), left)
	case v.Step == 0 && v.Saving:
		return fmt.Sprintf("leaving (%s): %s to hand over once the newest step is saved%s", v.Why, megabytes(v.Bytes), left)
	case v.Step == 0 && v.Paused:
		return fmt.Sprintf("leaving (%s): the run is paused; %s to hand over if enough of its voters answer within %s, else this node leaves without that%s",
			v.Why, megabytes(v.Bytes), plan.Duration(lonelyTimeout), left)
	case v.Step == 0:
		return fmt.Sprintf("leaving (%s): no step is under way here; %s to hand over once a plan without this node follows%s", v.Why, megabytes(v.Bytes), left)
	case v.Done >= v.Bytes:
		return fmt.Sprintf("leaving (%s): the state of step %d is handed over, %s%s%s", v.Why, v.Step, megabytes(v.Bytes), vote, left)
	}
	rate := ""
	if v.Done > 0 && v.BytesPerS > 0 {
		rate = fmt.Sprintf(" at %s/s, %s to go", megabytes(int64(v.BytesPerS)), plan.Duration(v.eta().Round(time.Second)))
	}
	return fmt.Sprintf("leaving (%s): handing over the state of step %d, %.1f of %s%s%s", v.Why, v.Step, float64(v.Done)/1e6, megabytes(v.Bytes), rate, left)
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
