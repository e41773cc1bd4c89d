package consensus

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// fresh is an invite that is made now.
func fresh(e Invite) Invite {
	e.Made = time.Now().Unix()
	return e
}

// The leader takes no invite of an owner whose clock is wrong, and says so; one that the log knows is harmless.
func TestInviteOfAnOwnerWhoseClockIsWrong(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		c.must(c.nodes["a"], testRun())
		for off, want := range map[time.Duration]string{
			-2 * time.Hour:   "this machine's clock is 2 h behind the leader's: set it",
			10 * time.Minute: "this machine's clock is 10 min ahead of the leader's: set it",
			4 * time.Minute:  "", -4 * time.Minute: "",
		} {
			e := fresh(testInvite(uint64(1000+off/time.Minute), "a", 1, false))
			e.Made += int64(off / time.Second)
			err := c.nodes["a"].Propose(t.Context(), e)
			if want == "" && err != nil || want != "" && (!errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), want)) {
				t.Errorf("%v off: %v, want %q", off, err, want)
			}
		}
		old := fresh(testInvite(7, "a", 1, false))
		c.must(c.nodes["a"], old)
		time.Sleep(time.Hour) // of the bubble
		if err := c.nodes["a"].Propose(t.Context(), old); err != nil {
			t.Errorf("again, an hour later: %v", err)
		}
	})
}
