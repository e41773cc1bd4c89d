package swarm

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/clock"
	"pnode/swarm/topics"
)

// tellTime has a member say every second what its clock says, and hear what others say, as heartbeats do.
func tellTime(t *testing.T, ctx context.Context, s *Swarm, c *clock.Clock, heard *atomic.Int64) {
	t.Helper()
	err := s.Topics().Subscribe(topics.Events, asItIs, func(from plan.PeerID, said any) {
		if from != s.ID() {
			heard.Add(1)
			c.Note(from, time.Unix(int64(binary.BigEndian.Uint64(said.([]byte))), 0))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for ctx.Err() == nil {
			if err := s.Topics().Publish(ctx, topics.Events, binary.BigEndian.AppendUint64(nil, uint64(c.Own().Unix()))); err != nil {
				return
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}()
}

// TestVirtualWrongClock: one of three members has a clock that is a year ahead of the others', or a day behind, from some
// moment on or since it came back to its run. Nobody loses a member, and messages go on to come.
func TestVirtualWrongClock(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		by        time.Duration
		fromStart bool
	}{
		"a jump of a year": {by: 365 * day}, "a day back": {by: -day},
		"back with a year ahead": {365 * day, true}, "back with a day behind": {-day, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newVirtualNet(t)
				o := testOwner(t)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				var by atomic.Int64
				if c.fromStart {
					by.Store(int64(c.by))
				}
				var all []*Swarm
				var clocks []*clock.Clock
				heard := make([]atomic.Int64, 3)
				for i := range 3 {
					cfg := testMember(t, o, testRun)
					cfg.Simulated = n.Host()
					if i > 0 {
						cfg.Bootstrap = all[0].Addrs()
					}
					cfg.Clock = clock.New(nil, false)
					if i == 2 {
						cfg.Clock = clock.New(func() time.Time { return time.Now().Add(time.Duration(by.Load())) }, c.fromStart)
					}
					clocks = append(clocks, cfg.Clock)
					all = append(all, start(t, cfg))
					tellTime(t, ctx, all[i], cfg.Clock, &heard[i])
				}
				for _, s := range all {
					waitMembers(t, ctx, s, 2)
				}
				time.Sleep(10 * time.Second)
				by.Store(int64(c.by))
				time.Sleep(time.Minute)
				for i, s := range all {
					if got := len(s.Members()); got != 2 {
						t.Errorf("node %d has %d members", i, got)
					}
					before := heard[i].Load()
					time.Sleep(10 * time.Second)
					if got := heard[i].Load() - before; got < 15 {
						t.Errorf("node %d hears %d messages in 10 s", i, got)
					}
					if off := time.Until(clocks[i].Now()).Abs(); off > 2*time.Second {
						t.Errorf("node %d is off by %v", i, off)
					}
					if got := clocks[i].Astray(); len(got) != 1 || (got[0].Member == "") != (i == 2) || !got[0].Sure || got[0].By.Round(time.Minute) != c.by {
						t.Errorf("node %d takes %+v for astray", i, got)
					}
				}
			})
		})
	}
}
