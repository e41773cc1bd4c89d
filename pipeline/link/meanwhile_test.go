package link

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/wire"
)

// pausing is a log that calls a function, once, where a peer is reported as lost.
type pausing struct {
	slog.Handler
	once atomic.Pointer[func()]
}

func (p *pausing) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "peer lost" {
		if f := p.once.Swap(nil); f != nil {
			(*f)()
		}
	}
	return nil
}

// TestWhatIsSentMeanwhileComesToTheSubstitute: a worker sends just after the node has looked up what it sends again. The node knows of the
// loss by the substitute alone, or its own line tells it at that moment.
func TestWhatIsSentMeanwhileComesToTheSubstitute(t *testing.T) {
	for name, both := range map[string]bool{"by the substitute": false, "by its line too": true} {
		t.Run(name, func(t *testing.T) {
			log := &pausing{Handler: slog.NewTextHandler(io.Discard, nil)}
			withLineOf(t, Options{Log: slog.New(log)}, func(t *testing.T, c *cluster, s []*Session, _ func()) {
				before, lost, by := s[0], c.ids[1], s[3]
				goesOn := make(chan struct{})
				if both {
					wait := func() { <-goesOn }
					log.once.Store(&wait)
					go before.endpoint.PeerEnded(lost)
					synctest.Wait()
				}
				if err := by.Substitute(lost, c.ids[3], 4, frames()); err != nil {
					t.Fatal(err)
				}
				f := wire.Frame{Tag: to(1, 5, 0), Payload: []byte("meanwhile")}
				sent, replaced := make(chan error, 1), make(chan error, 1)
				go func() {
					replaced <- before.Substitute(lost, c.ids[3], 4, func() ([]wire.Frame, error) {
						go func() { sent <- before.Send(t.Context(), lost, f) }()
						time.Sleep(time.Second)
						return nil, nil
					})
				}()
				time.Sleep(2 * time.Second)
				close(goesOn)
				for _, done := range []chan error{replaced, sent} {
					if err := <-done; err != nil {
						t.Fatal(err)
					}
				}
				got, err := by.As(lost, 0).Receive(within(t, time.Minute), c.ids[0], f.Tag)
				if err != nil || string(got) != "meanwhile" {
					t.Errorf("got %q, %v", got, err)
				}
			})
		})
	}
}
