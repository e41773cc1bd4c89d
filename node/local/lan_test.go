package local

import (
	"context"
	"errors"
	"slices"
	"testing"

	"pnode/node/api"
)

// TestTheLocalNetworkIsToldOfAsWithOneNode: that the run is announced, and once who asks to join, whom whoever is asked can let in.
func TestTheLocalNetworkIsToldOfAsWithOneNode(t *testing.T) {
	t.Parallel()
	s, out := supervise(t, "asked", 2, func(o *Options) { o.Config.LAN = true })
	go func() {
		out.await(func(r *record) bool { return slices.Contains(r.notices, fakeNewcomer.Text()) })
		for _, c := range s.started() {
			if c.index == 0 {
				client, err := c.dial(context.Background())
				if err == nil {
					_, err = client.Admit(context.Background(), fakeNewcomer.Code)
				}
				if err != nil {
					t.Error(err)
				}
			}
		}
	}()
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{api.Announced, fakeNewcomer.Text()} {
		if got := slices.Index(out.notices, line); got < 0 || slices.Contains(out.notices[got+1:], line) {
			t.Errorf("want %q once in %q", line, out.notices)
		}
	}
	for in, want := range map[bool]string{true: "laptop may join", false: ""} {
		asked := make(chan error, 1)
		s, out = supervise(t, "asked", 2, func(o *Options) {
			o.Config.LAN = true
			o.Newcomer = func(n api.Newcomer, answer api.Decision) {
				done, err := answer(context.Background(), in)
				if n != fakeNewcomer || done != want {
					err = errors.Join(err, errors.New(n.Name+": "+done))
				}
				asked <- err
			}
		})
		if err := errors.Join(s.Run(t.Context()), <-asked); err != nil || slices.Contains(out.notices, fakeNewcomer.Text()) {
			t.Errorf("%v; %q", err, out.notices)
		}
	}
}
