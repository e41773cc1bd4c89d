package link

import (
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
// small part of them: back-pressure must not stop it.
func TestAllReduceOverSessions(t *testing.T) {
	t.Parallel()
	const layers, elements = 6, 30_001
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
