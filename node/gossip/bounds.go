package gossip

import (
	"fmt"

	"pnode/planner/plan"
)

// Bounds of the numbers in a heartbeat: far above what any run has, and far enough below 2^63 that sums over a plan
// stay exact.
const (
	maxStep  plan.Step = 1 << 40
	maxNanos int64     = 1 << 50 // 13 days
	maxRate            = 1e15    // tokens per second, nats, and parts of one

	maxUnixMillis int64 = 1 << 43 // in the year 2248
)

// times returns the times of a heartbeat, in nanoseconds, and the rates of its links, in bytes per second.
func (b *Heartbeat) times() (nanos, rates []*int64) {
	nanos = []*int64{&b.StepNanos}
	for i := range b.Stages {
		s := &b.Stages[i]
		nanos = append(nanos, &s.ForwardNanos, &s.BackwardNanos, &s.WaitNanos, &s.UpdateNanos)
	}
	for i := range b.Links {
		l := &b.Links[i]
		nanos, rates = append(nanos, &l.RTTNanos, &l.JitterNanos), append(rates, &l.BytesPerS)
	}
	for i := range b.Inner {
		nanos = append(nanos, &b.Inner[i].Nanos)
	}
	for i := range b.Met {
		m := &b.Met[i]
		nanos = append(nanos, &m.RoundNanos, &m.WaitedNanos, &m.HiddenNanos)
	}
	if s := b.Spares; s != nil {
		for i := range s.Members {
			nanos = append(nanos, &s.Members[i].WithNanos, &s.Members[i].WithoutNanos)
		}
	}
	if c := b.Cadence; c != nil {
		nanos = append(nanos, &c.EveryNanos, &c.TookNanos, &c.LostNanos, &c.StepNanos, &c.SavingNanos)
	}
	return nanos, rates
}

// texts returns the texts of a heartbeat, with the most bytes that each has.
func (b *Heartbeat) texts() (texts []*string, most []int) {
	add := func(text *string, bytes int) { texts, most = append(texts, text), append(most, bytes) }
	add(&b.Phase, maxPhaseBytes)
	add(&b.Lineage, maxLineageBytes)
	add(&b.Reason, maxReasonBytes)
	add(&b.Blocked, maxBlockedBytes)
	add(&b.Schedule, MaxScheduleBytes)
	if b.Wish != nil {
		add(&b.Wish.Schedule, MaxScheduleBytes)
		add(&b.Wish.Why, MaxWhyBytes)
	}
	if b.Whole != nil {
		add(&b.Whole.Why, maxReasonBytes)
	}
	if b.Hints != nil {
		for i := range b.Hints.Texts {
			add(&b.Hints.Texts[i], maxHintBytes)
		}
	}
	for i := range b.Links {
		add(&b.Links[i].Reason, maxLinkReasonBytes)
	}
	return texts, most
}

// check returns why a number or a text of the heartbeat cannot be, if one cannot: people read the texts.
func (b Heartbeat) check() error {
	texts, most := b.texts()
	for i, text := range texts {
		if !plan.Printable(*text, most[i]) {
			return fmt.Errorf("the text %.40q of %d bytes, want at most %d bytes of printable text", *text, len(*text), most[i])
		}
	}
	if b.Step > maxStep || b.Slower > b.Newest() || b.Finished > maxStep || b.Extends > maxStep || b.Kept > maxStep || max(b.NoRestore, b.LeftOut, b.Replayed) > maxStep || b.Fault != nil && b.Fault.Step > maxStep {
		return fmt.Errorf("step %d, slower by %d, finished at %d, messages kept from %d on, step %d not restored, %d not saved, %d replayed, want at most %d", b.Step, b.Slower, b.Finished, b.Kept, b.NoRestore, b.LeftOut, b.Replayed, maxStep)
	}
	if b.LacksLayer != nil && *b.LacksLayer < 0 {
		return fmt.Errorf("layer %d is lacking, want none below 0", *b.LacksLayer)
	}
	if b.UnixMillis < 0 || b.UnixMillis > maxUnixMillis {
		return fmt.Errorf("the time of %d ms, want 0 to %d", b.UnixMillis, maxUnixMillis)
	}
	if b.Whole != nil {
		if err := b.Whole.Check(); err != nil {
			return err
		}
	}
	figures := []float64{b.Loss, b.TokensPerS}
	for _, s := range b.Stages {
		if s.Replica < 0 || s.Stage < 0 || s.FellBack < 0 {
			return fmt.Errorf("replica %d stage %d, %d tensors in a better codec, want none below 0", s.Replica, s.Stage, s.FellBack)
		}
		figures = append(figures, s.RelError)
	}
	for _, r := range b.Retained {
		if r.Replica < 0 || r.Stage < 0 || r.Step > maxStep || r.Pending != 0 && r.Pending != r.Step+1 {
			return fmt.Errorf("replica %d stage %d at step %d with the gradients of step %d, want none below 0, at most step %d and the next step's gradients", r.Replica, r.Stage, r.Step, r.Pending, maxStep)
		}
	}
	for _, s := range b.Inner {
		if s.Replica < 0 || s.Replica >= plan.MaxLocalReplicas || s.Step > maxStep {
			return fmt.Errorf("replica %d at step %d, want one below %d and at most step %d", s.Replica, s.Step, plan.MaxLocalReplicas, maxStep)
		}
		figures = append(figures, s.Loss)
	}
	for _, h := range b.HandedIn {
		if err := h.check(); err != nil {
			return err
		}
	}
	for _, m := range b.Met {
		if err := m.check(); err != nil {
			return err
		}
	}
	for _, x := range figures {
		if x < 0 || x > maxRate {
			return fmt.Errorf("a loss, speed or error of %g, want 0 to %g", x, maxRate)
		}
	}
	for _, l := range b.Links {
		if !l.Transport.Valid() {
			return fmt.Errorf("a link over %.20q, want one of %v", string(l.Transport), plan.Transports)
		}
	}
	if c := b.Cadence; c != nil && (!c.Why.Valid() || c.Saving > maxStep || c.Late > maxStep) {
		return fmt.Errorf("checkpoints for %.20q, the one of step %d under way, the last after %d steps, want a reason and at most %d", string(c.Why), c.Saving, c.Late, maxStep)
	}
	nanos, rates := b.times()
	for _, n := range nanos {
		if *n < 0 || *n > maxNanos {
			return fmt.Errorf("a time of %d ns, want 0 to %d", *n, maxNanos)
		}
	}
	for _, n := range rates {
		if *n < 0 || *n > plan.MaxLinkBytesPerS {
			return fmt.Errorf("a rate of %d bytes/s, want 0 to %d", *n, plan.MaxLinkBytesPerS)
		}
	}
	return nil
}

// check returns why no replica can have ended a round so, if none can.
func (h HandedIn) check() error {
	least := plan.Replica(0)
	for _, q := range h.Lacks {
		if q < least || q >= plan.MaxLocalReplicas || q == h.Replica {
			return fmt.Errorf("replica %d lacks %v, want others below %d in ascending order", h.Replica, h.Lacks, plan.MaxLocalReplicas)
		}
		least = q + 1
	}
	if h.Replica < 0 || h.Replica >= plan.MaxLocalReplicas || h.From > maxStep || h.Steps < 1 || h.Steps > plan.MaxEvery {
		return fmt.Errorf("replica %d has %d steps after step %d, want one below %d, 1 to %d steps after step %d at most", h.Replica, h.Steps, h.From, plan.MaxLocalReplicas, plan.MaxEvery, maxStep)
	}
	return nil
}

// clamp keeps what was measured here within the bounds of check: a clock may go back.
func (b *Heartbeat) clamp() {
	b.UnixMillis = min(max(b.UnixMillis, 0), maxUnixMillis)
	nanos, rates := b.times()
	for _, n := range nanos {
		*n = min(max(*n, 0), maxNanos)
	}
	for _, n := range rates {
		*n = min(max(*n, 0), plan.MaxLinkBytesPerS)
	}
	figures := []*float64{&b.Loss, &b.TokensPerS}
	for i := range b.Stages {
		figures = append(figures, &b.Stages[i].RelError)
	}
	for i := range b.Inner {
		figures = append(figures, &b.Inner[i].Loss)
	}
	for _, x := range figures {
		*x = min(max(*x, 0), maxRate)
	}
}
