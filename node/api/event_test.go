package api

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

func nan() float64 { return math.NaN() }

func stepEvent(step int) Event {
	return Event{Kind: KindStep, Step: plan.Step(step), Loss: 1 / float64(step), Generation: 1}
}

func TestEventKeepsEveryBit(t *testing.T) {
	heldOut := math.Nextafter(2, 3)
	for _, e := range []Event{
		{Seq: 1, Kind: KindStep, Generation: 3, Step: 12, Steps: 600, Loss: 0.30000000000000004, HeldOut: &heldOut, HeldOutF32: &heldOut, TokensPerS: 1e21 / 3},
		{Kind: KindStep, Loss: math.SmallestNonzeroFloat64},
		{Kind: KindError, Message: "line\n\"two\""},
	} {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var got Event
		if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", b, err, got, e)
		}
	}
}

func TestEventOfADivergedRun(t *testing.T) {
	inf := math.Inf(1)
	b, err := json.Marshal(Event{Kind: KindStep, Step: 3, Loss: nan(), HeldOut: &inf, HeldOutF32: &inf, TokensPerS: inf})
	if err != nil {
		t.Fatal(err)
	}
	var got Event
	if err := json.Unmarshal(b, &got); err != nil || !math.IsNaN(got.Loss) || got.HeldOut != nil || got.HeldOutF32 != nil || got.Step != 3 {
		t.Errorf("%s: got %+v, %v", b, got, err)
	}
}

func TestReplayAndThenLive(t *testing.T) {
	node := &fakeNode{}
	dir, _ := serve(t, node, nil)
	c := dial(t, dir)
	for step := 1; step <= 3; step++ {
		node.Publish(stepEvent(step))
	}
	var got []plan.Step
	for e, err := range c.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Step)
		if e.Seq != uint64(e.Step) {
			t.Errorf("step %d has sequence number %d", e.Step, e.Seq)
		}
		switch e.Step {
		case 3:
			node.Publish(stepEvent(4))
		case 4:
			node.Publish(stepEvent(5))
			node.Close()
		}
	}
	if want := []plan.Step{1, 2, 3, 4, 5}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestHistoryKeepsTheNewest(t *testing.T) {
	var h Hub
	for step := 1; step <= 3*HistoryEvents/2; step++ {
		h.Publish(stepEvent(step))
	}
	h.Close()
	next := plan.Step(HistoryEvents/2 + 1)
	for e := range h.Events(t.Context()) {
		if e.Step != next {
			t.Fatalf("got step %d, want %d", e.Step, next)
		}
		next++
	}
	if next != 3*HistoryEvents/2+1 {
		t.Errorf("ended before step %d", next)
	}
	h.Publish(stepEvent(1)) // nobody is there any more, and nothing happens
}

func TestSlowReaderIsCutOffAndComesBack(t *testing.T) {
	var h Hub
	slow, quick := h.Events(t.Context()), h.Events(t.Context())
	const events = HistoryEvents + queueEvents + 10
	for step := 1; step <= events; step++ {
		h.Publish(stepEvent(step)) // would block for ever if it waited for slow
		if e := <-quick; e.Step != plan.Step(step) {
			t.Fatalf("the quick reader got step %d at %d", e.Step, step)
		}
	}
	read := 0
	for e := range slow {
		if read++; e.Step != plan.Step(read) {
			t.Fatalf("event %d is step %d", read, e.Step)
		}
	}
	if read != HistoryEvents+queueEvents {
		t.Errorf("the slow reader got %d events, want %d", read, HistoryEvents+queueEvents)
	}
	again := h.Events(t.Context())
	if e := <-again; e.Step != events-HistoryEvents+1 {
		t.Errorf("back again it begins at step %d", e.Step)
	}
}

func TestSubscriptionEndsWithItsContext(t *testing.T) {
	var h Hub
	ctx, cancel := context.WithCancel(t.Context())
	ch := h.Events(ctx)
	cancel()
	for range ch { // ends when the channel is closed
		t.Error("an event out of nowhere")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subscribers) != 0 {
		t.Error("the subscription is kept")
	}
}

// TestEndingServerWritesWhatIsQueued: the last events of a run reach its readers although
// the server ends right after them.
func TestEndingServerWritesWhatIsQueued(t *testing.T) {
	node := &fakeNode{}
	dir, stop := serve(t, node, nil)
	c := dial(t, dir)
	node.Publish(stepEvent(1))
	last := plan.Step(0)
	for e, err := range c.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Step == 1 {
			for step := 2; step <= 500; step++ {
				node.Publish(stepEvent(step))
			}
			stop()
		}
		last = e.Step
	}
	if last != 500 {
		t.Errorf("the last event was step %d", last)
	}
}

// pipes is a listener for connections in memory, whose deadlines virtual time reaches.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p <- far
	return near, nil
}

// TestQuietStreamLivesOn: neither the read nor the write timeout ends a stream on which
// nothing happens for a while, and its end is a clean one.
func TestQuietStreamLivesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quiet = 4 * (readTimeout + writeTimeout)
		node, connections := &fakeNode{}, make(pipes)
		var c *Client
		_, stop := serve(t, node, func(s *Server) {
			s.listener.Close()
			s.listener = connections
			c = &Client{address: s.address, http: &http.Client{Transport: &http.Transport{DialContext: connections.dial}}}
		})
		node.Publish(stepEvent(1))
		var got []plan.Step
		for e, err := range c.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Step)
			if e.Step == 1 {
				time.AfterFunc(quiet, func() { node.Publish(stepEvent(2)) })
			} else {
				time.AfterFunc(quiet, node.Close)
			}
		}
		if len(got) != 2 {
			t.Errorf("got %v", got)
		}
		c.Close()
		stop()
	})
}

func TestStreamsAreBounded(t *testing.T) {
	node := &fakeNode{}
	node.Publish(stepEvent(1))
	dir, _ := serve(t, node, func(s *Server) { s.streams = make(chan struct{}, 1) })
	c := dial(t, dir)
	for _, err := range c.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range c.Events(t.Context()) {
			if !errors.Is(err, ErrNotReady) || !strings.Contains(err.Error(), "streams") {
				t.Errorf("second stream: %v", err)
			}
		}
		break
	}
}

func TestLongAndBrokenLines(t *testing.T) {
	for _, tt := range []struct{ name, text string }{
		{"broken", "{\"seq\":1}\n{\"seq\":"},
		{"long", "{\"seq\":1}\n" + strings.Repeat("x", maxEventBytes+1)},
		{"wrong type", "{\"seq\":1}\n{\"seq\":-1}\n"},
	} {
		var errs, events int
		for _, err := range decodeEvents(strings.NewReader(tt.text)) {
			if err != nil {
				errs++
			} else {
				events++
			}
		}
		if events != 1 || errs != 1 {
			t.Errorf("%s: %d events, %d errors", tt.name, events, errs)
		}
	}
}

// FuzzDecodeEvents looks for lines that panic, or decode to what does not encode again.
func FuzzDecodeEvents(f *testing.F) {
	b, err := json.Marshal(stepEvent(3))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b) + "\n" + string(b))
	f.Add(`{"loss":null,"held_out":1e308}`)
	f.Fuzz(func(t *testing.T, text string) {
		for e, err := range decodeEvents(strings.NewReader(text)) {
			if err != nil {
				return
			}
			b, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			var again Event
			if err := json.Unmarshal(b, &again); err != nil {
				t.Fatalf("%s: %v", b, err)
			}
		}
	})
}
