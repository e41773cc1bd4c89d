package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pnode/node/api"
)

// TestWhoAsksNoMoreIsForgotten: a newcomer is told of once while it waits, and nothing is kept of those who left.
func TestWhoAsksNoMoreIsForgotten(t *testing.T) {
	known, begin := asking{}, time.Unix(1e9, 0)
	look := func(want int, waiting ...api.Newcomer) {
		t.Helper()
		if came := known.look(waiting); len(came) != want || len(known) != len(waiting) {
			t.Errorf("%d have come and %d are known, want %d and %d", len(came), len(known), want, len(waiting))
		}
	}
	first := api.Newcomer{Code: "111111", Since: begin}
	look(1, first)
	look(0, first)
	for i := range 1000 {
		look(1, first, api.Newcomer{Code: fmt.Sprint(200000 + i), Since: begin})
	}
	again := api.Newcomer{Code: "111111", Since: begin.Add(time.Hour)}
	look(1, again)
	look(0)
	look(1, again)
}

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
	for in, want := range map[bool]string{true: "laptop may join", false: fakeNewcomer.Refused()} {
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
