package checkpointer

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/planner/plan"
)

const (
	// lateTimes is how many times as long as another a source may take for as many bytes before others are asked for its share.
	lateTimes = 3
	// leastLate bounds what a source may take for its share from below: small shares say little of a line.
	leastLate = 500 * time.Millisecond
)

// fetchShares fetches shares at the same time, each from its own source. Where a source is late other holders are asked for
// what it has not sent: its line may be narrow, or its process stopped, and a plan's first step waits for the last chunk. What
// comes first counts.
func (f Fetcher) fetchShares(ctx context.Context, shares []share) error {
	ctx, enough := context.WithCancel(ctx)
	var asking errgroup.Group
	defer func() {
		enough()
		_ = asking.Wait() // the errors have come over ends
	}()
	ends := make(chan end, 2*len(shares)) // each share is asked for twice at most
	ask := func(of *share, holders []plan.PeerID) {
		of.asked++
		of.running++
		asking.Go(func() error {
			ends <- end{of, f.Ensure(ctx, of.chunks, holders)}
			return nil
		})
	}
	for i := range shares {
		ask(&shares[i], shares[i].holders)
	}
	var failures []error
	t := timing{begun: time.Now()}
	for left := len(shares); left > 0; {
		due, wait := t.next(shares)
		select {
		case e := <-ends:
			e.of.running--
			switch {
			case e.of.done:
			case e.err == nil:
				t.note(*e.of, time.Now())
				e.of.done = true
				left--
			case e.of.running == 0:
				e.of.done, failures = true, append(failures, e.err)
				left--
			}
		case <-wait:
			ask(due, due.holders[1:])
		}
	}
	return errors.Join(failures...)
}

// end says how the question for a share ended.
type end struct {
	of  *share
	err error
}

// timing follows how long sources take.
type timing struct {
	begun time.Time
	perKB time.Duration // of the slowest source that is done, a second at most; 0 while none is
}

// note takes in that a share has come.
func (t *timing) note(of share, now time.Time) {
	if of.asked == 1 {
		t.perKB = min(max(t.perKB, now.Sub(t.begun)*1024/time.Duration(max(of.bytes, 1))), time.Second)
	}
}

// next returns the share whose source is late first, and a channel that receives a value then; neither where none can be.
func (t *timing) next(shares []share) (*share, <-chan time.Time) {
	var first *share
	var soonest time.Duration
	for i := range shares {
		of := &shares[i]
		if of.done || of.asked > 1 || len(of.holders) < 2 || t.perKB == 0 {
			continue
		}
		if d := max(lateTimes*t.perKB*time.Duration(of.bytes/1024+1), leastLate); first == nil || d < soonest {
			first, soonest = of, d
		}
	}
	if first == nil {
		return nil, nil
	}
	return first, time.After(time.Until(t.begun.Add(soonest)))
}
