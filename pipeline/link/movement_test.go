package link

import (
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

// TestMovedTellsSlowFromMute: the count grows with each piece of a message that takes seconds to come, at both ends,
// and with none of a step that is long over or far ahead.
func TestMovedTellsSlowFromMute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{BytesPerS: 100_000, Delay: 10 * time.Millisecond}, Options{})
		defer c.close()
		s := c.sessions(1)
		for _, session := range s {
			session.Moved(5)
		}
		time.Sleep(3 * time.Second) // heartbeats alone
		sent, came := s[0].Moved(5), s[1].Moved(5)
		if sent != 0 || came != 0 {
			t.Fatalf("%d and %d have moved before the first message", sent, came)
		}
		mustSend(t, s[0], c.ids[1], activation(1, 5, 0), payload(1_000_000, 1))
		for range 3 {
			time.Sleep(3 * time.Second)
			nowSent, nowCame := s[0].Moved(5), s[1].Moved(5)
			if nowSent == sent || nowCame == came {
				t.Fatalf("nothing has moved in 3 s of a slow message: %d and %d", nowSent, nowCame)
			}
			sent, came = nowSent, nowCame
		}
		mustReceive(t, s[1], c.ids[0], activation(1, 5, 0), payload(1_000_000, 1))
		came = s[1].Moved(5)
		for step, counts := range map[plan.Step]bool{0: false, 3: false, 4: true, 6: true, 7: false, 1 << 40: false} {
			mustSend(t, s[0], c.ids[1], activation(1, step, 1), []byte("x"))
			time.Sleep(time.Second)
			now := s[1].Moved(5)
			if (now != came) != counts {
				t.Errorf("a message of step %d counts: %t", step, !counts)
			}
			came = now
		}
	})
}
