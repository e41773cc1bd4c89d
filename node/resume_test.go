package node

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestAwaitUnreachable: a node that comes back stops waiting when the others have been known to be
// away without a break for unreachableAfter; one that shows up in between begins that time anew.
func TestAwaitUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		up := began.Add(unreachableAfter - unreachableEvery)
		var told []time.Time // since when, each once
		tell := func(since time.Time) {
			if len(told) == 0 || !told[len(told)-1].Equal(since) {
				told = append(told, since)
			}
		}
		if !awaitUnreachable(t.Context(), unreachableAfter, func(context.Context) bool { return !time.Now().Equal(up) }, tell) {
			t.Error("it gave up")
		}
		if want := []time.Time{began, {}, up.Add(unreachableEvery)}; !slices.EqualFunc(told, want, time.Time.Equal) {
			t.Errorf("told %v, want %v", told, want)
		}
		if waited := time.Since(up); waited != unreachableAfter+unreachableEvery {
			t.Errorf("it waited %v since one was there", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*unreachableAfter)
		defer cancel()
		if awaitUnreachable(ctx, unreachableAfter, func(context.Context) bool { return false }, tell) {
			t.Error("others that may be there are taken to be away")
		}
	})
}
