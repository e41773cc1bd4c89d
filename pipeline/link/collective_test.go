package link

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/collective"
	"pnode/planner/plan"
)

var _ collective.Exchange = (*Session)(nil)

// TestAllReduceOverSessions reduces many layers with queues and inboxes that hold only a
// small part of a piece: back-pressure must not stop it.
func TestAllReduceOverSessions(t *testing.T) {
	t.Parallel()
	const layers, elements = 4, 300_001
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 3, LinkConditions{BytesPerS: 12_500_000, Delay: 5 * time.Millisecond}, Options{QueueBytes: 10_000, InboxBytes: 10_000})
		defer c.close()
		var members []collective.Member
		for r, id := range c.ids {
			members = append(members, collective.Member{Peer: id, Groups: plan.GroupRange{First: r, End: r + 1}})
		}
		value := func(layer, replica, i int) float32 { return float32(layer+1) * float32(i) / float32(replica+3) }
		var work errgroup.Group
		for self, s := range c.sessions(4) {
			work.Go(func() error {
				grad := make([]float32, elements)
				for layer := range layers {
					for i := range grad {
						grad[i] = value(layer, self, i)
					}
					g := collective.Group{Members: members, Sums: plan.Sums{Micros: len(members), Groups: len(members)}, Self: plan.Replica(self), Layer: layer, Generation: 4, Step: 1}
					if err := collective.AllReduce(t.Context(), s, g, [][]float32{grad}); err != nil {
						return err
					}
					for i, got := range grad {
						want := value(layer, 0, i) + value(layer, 1, i)
						want += value(layer, 2, i)
						if math.Float32bits(got) != math.Float32bits(want) {
							t.Errorf("replica %d layer %d element %d is %v, want %v", self, layer, i, got, want)
							return nil
						}
					}
				}
				return nil
			})
		}
		if err := work.Wait(); err != nil {
			t.Fatal(err)
		}
	})
}

// average adds vectors up in layers, as pipeline does, and returns how long it took and the most bytes that a peer sent.
func average(t *testing.T, c *cluster, em *Emulated, sessions []*Session, layers, elements int, step plan.Step) (took time.Duration, sent uint64) {
	t.Helper()
	var members []collective.Member
	for r, id := range c.ids {
		members = append(members, collective.Member{Peer: id, Groups: plan.GroupRange{First: r, End: r + 1}})
	}
	bytes := func(from plan.PeerID) (n uint64) {
		for _, to := range c.ids {
			n += em.LinkCounts(from, to).Bytes
		}
		return n
	}
	before := make([]uint64, len(c.ids))
	for r, id := range c.ids {
		before[r] = bytes(id)
	}
	begin := time.Now()
	var work errgroup.Group
	for self, s := range sessions {
		for layer := range layers {
			work.Go(func() error {
				g := collective.Group{
					Members: members, Sums: plan.Sums{Micros: len(members), Groups: len(members)}, Self: plan.Replica(self), Layer: layer,
					Generation: 4, Step: step,
				}
				return collective.AllReduce(t.Context(), s, g, [][]float32{make([]float32, elements)})
			})
		}
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
	took = time.Since(begin)
	for r, id := range c.ids {
		sent = max(sent, bytes(id)-before[r])
	}
	return took, sent
}

// TestAverageFillsTheLine: while gradients are added up, both directions of a line are full until the end.
func TestAverageFillsTheLine(t *testing.T) {
	t.Parallel()
	for _, peers := range []int{2, 4} {
		t.Run(fmt.Sprint(peers), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const rate = 2_500_000
				c, em := emulated(t, peers, LinkConditions{BytesPerS: rate, Delay: time.Millisecond}, Options{})
				defer c.close()
				for _, id := range c.ids {
					em.SetUplink(id, rate)
				}
				sessions := c.sessions(4)
				for step := range plan.Step(3) { // the first one has connections to make
					took, sent := average(t, c, em, sessions, 4, 400_000, step)
					full := time.Duration(float64(sent) / rate * float64(time.Second))
					t.Logf("step %d took %v, the line %v", step, took, full)
					if step > 0 && took > full+full/20 {
						t.Errorf("step %d took %v, its bytes at the rate of the line %v", step, took, full)
					}
				}
			})
		})
	}
}
