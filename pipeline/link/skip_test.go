package link

import (
	"testing"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// TestASubstituteSkipsTheStepsOfItsState: it gets a step again that its state has already. Once it says so, these messages take no room, nor do those
// that come later, and all of the next step can be on its way before anybody waits for it.
func TestASubstituteSkipsTheStepsOfItsState(t *testing.T) {
	const room = 4
	withLineOf(t, Options{InboxFrames: room}, func(t *testing.T, c *cluster, s []*Session, lose func()) {
		before, lost, by := s[0], c.ids[1], s[3]
		lose()
		var again []wire.Frame
		for i := range int32(2 * room) { // half of them wait for room
			again = append(again, wire.Frame{Tag: to(1, 5, i)})
		}
		again = append(again, wire.Frame{Tag: to(1, 6, 0)})
		for end, resend := range map[*Session][]wire.Frame{before: again, by: nil} {
			if err := end.Substitute(lost, c.ids[3], 4, frames(resend...)); err != nil {
				t.Fatal(err)
			}
		}
		mustSend(t, s[2], c.ids[3], to(3, 5, 0), nil) // for its own stage
		held := func() map[plan.Step]int {
			time.Sleep(time.Second)
			by.inbox.mu.Lock()
			defer by.inbox.mu.Unlock()
			steps := map[plan.Step]int{}
			for k := range by.inbox.held {
				if k.from == c.ids[0] {
					steps[k.tag.Step]++
				}
			}
			return steps
		}
		if got := held(); got[5] != room || got[6] != 0 {
			t.Fatalf("messages held by step are %v, want %d of step 5", got, room)
		}
		by.Skip(lost, 5)
		if got := held(); got[5] != 0 || got[6] != 1 {
			t.Errorf("messages held by step are %v, want one of step 6", got)
		}
		for i := range int32(room) {
			mustSend(t, before, lost, to(1, 5, 2*room+i), nil)
			mustSend(t, before, lost, to(1, 6, 1+i), nil)
		}
		if got := held(); got[5] != 0 || got[6] != room {
			t.Errorf("messages held by step are %v, want %d of step 6", got, room)
		}
		if got := by.inbox.loads[account{c.ids[0], wire.Activations}]; got.messages != room {
			t.Errorf("%d messages count, want %d", got.messages, room)
		}
		mustReceive(t, by, c.ids[2], to(3, 5, 0), nil)
	})
}
