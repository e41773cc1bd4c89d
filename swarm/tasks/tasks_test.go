package tasks

import (
	"context"
	"testing"
)

// Close ends what runs, turns away what comes, and Wait waits for both.
func TestGroupEnds(t *testing.T) {
	g := New()
	started, ended := make(chan struct{}), false
	g.Run(func(ctx context.Context) {
		close(started)
		<-ctx.Done()
		ended = true
	})
	<-started
	if !g.Enter() {
		t.Fatal("an open group turns a handler away")
	}
	left := make(chan struct{})
	go func() {
		<-g.Context.Done()
		close(left)
		g.Leave()
	}()
	if !g.Close() || g.Close() {
		t.Error("the first Close is the first, and no other")
	}
	g.Wait()
	<-left
	if !ended {
		t.Error("Wait did not wait")
	}
	if g.Enter() {
		t.Error("a closed group takes a handler in")
	}
	g.Run(func(context.Context) { t.Error("a closed group runs") })
	g.Wait()
}
