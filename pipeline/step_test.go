package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestALostSendSaysWhy: a reduction beside the program, which a lost send cancels, ends first, and
// the program itself meets no more than the end of its context. What it ends with is what was lost.
func TestALostSendSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Worker{}
		ctx, cancel := w.begin(t.Context(), 2)
		w.beside.Go(func() error {
			<-ctx.Done()
			return ctx.Err()
		})
		w.departures <- departure{send: func() error { return errDead }, read: &reading{under: make(chan struct{})}}
		synctest.Wait()
		if err := w.fail(ctx, cancel, ctx.Err()); !errors.Is(err, errDead) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the death of the replica and the end of the context", err)
		}
	})
}
