package node

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// stuckAfter is how long of real time no message may pass between the nodes of a bubble. Virtual time stands then, and no
// bound of it ends the test.
const stuckAfter = 5 * time.Minute

// watched tests a fleet in a bubble, from outside of which it looks whether messages pass. Where none do the process ends
// with the command that tries the fleet again, and with the stacks of all goroutines.
func watched(t *testing.T, again string, test func(t *testing.T, passed *atomic.Int64)) {
	var passed atomic.Int64
	stop := watch(stuckAfter, &passed, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("%s: no message for %v of real time; again: %s", t.Name(), stuckAfter, again))
	})
	defer stop()
	synctest.Test(t, func(t *testing.T) { test(t, &passed) })
}

// watch calls stuck once a count has stayed the same for a time. The function that it returns ends it.
func watch(after time.Duration, count *atomic.Int64, stuck func()) (stop func()) {
	ended := make(chan struct{})
	go func() {
		for before := count.Load(); ; {
			select {
			case <-time.After(after):
			case <-ended:
				return
			}
			now := count.Load()
			if now == before {
				stuck()
				return
			}
			before = now
		}
	}()
	return func() { close(ended) }
}

// TestAStuckFleetIsNoticed: a watch is quiet while something counts, and calls once nothing does.
func TestAStuckFleetIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var count atomic.Int64
		var noticed atomic.Bool
		stop := watch(time.Minute, &count, func() { noticed.Store(true) })
		defer stop()
		for range 5 {
			time.Sleep(50 * time.Second)
			count.Add(1)
		}
		if noticed.Load() {
			t.Fatal("taken for stuck while it counts")
		}
		time.Sleep(3 * time.Minute)
		if !noticed.Load() {
			t.Error("nothing counts, and nobody notices")
		}
	})
}
