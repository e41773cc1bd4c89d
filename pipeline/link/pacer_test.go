package link

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// TestBulkLetsOthersPass: while chunks are being fetched over a line of 100 Mbit/s and 20 ms
// one way, which holds 100 ms, a control message and an activation hardly wait, and the
// chunks still get a good part of it.
func TestBulkLetsOthersPass(t *testing.T) {
	const rate, settle, rounds = 12_500_000, 10, 16
	figuresOnly(t, "TestStateThatAllWaitForIsNotHeldBack and TestFetchBesideASession")
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{BytesPerS: rate, Delay: 20 * time.Millisecond}, Options{})
		defer c.close()
		sessions := c.sessions(1)
		for _, s := range sessions {
			s.Settled()
		}
		c.endpoints[0].ServeChunks(library(wire.MaxChunkBytes))
		ctx, cancel := context.WithCancel(t.Context())
		var fetched atomic.Int64
		var work errgroup.Group
		for ctx.Err() == nil && c.connections(1, 0) == 0 {
			time.Sleep(time.Millisecond)
		}
		work.Go(func() error {
			for ctx.Err() == nil {
				c.endpoints[1].Fetch(ctx, c.ids[0], hashes(1), func(_ plan.Hash, b []byte) error {
					fetched.Add(int64(len(b)))
					return nil
				})
			}
			return nil
		})
		var control, tensor []time.Duration
		delay := func(step int, k wire.Kind, size int) time.Duration {
			begin, tag := time.Now(), wire.Tag{Kind: k, Generation: 1, Step: plan.Step(step)}
			mustSend(t, sessions[0], c.ids[1], tag, payload(size, step))
			mustReceive(t, sessions[1], c.ids[0], tag, payload(size, step))
			return time.Since(begin)
		}
		measure := func(steps int) (bulk float64) {
			control, tensor = nil, nil
			before, begin := fetched.Load(), time.Now()
			for i := range steps {
				step := int(time.Since(time.Unix(946684800, 0))/time.Millisecond) + i
				control = append(control, delay(step, wire.KindReport, 100))
				tensor = append(tensor, delay(step, wire.Activation, 100_000))
				time.Sleep(200 * time.Millisecond)
			}
			slices.Sort(control)
			slices.Sort(tensor)
			return float64(fetched.Load()-before) / time.Since(begin).Seconds()
		}
		measure(settle) // until the chunks' rate has settled
		bulk := measure(rounds)
		t.Logf("control %v, an activation of 0.1 MB %v (median), chunks %.0f%% of the line", control[rounds/2], tensor[rounds/2], 100*bulk/rate)
		if control[rounds/2] > 50*time.Millisecond || tensor[rounds/2] > 75*time.Millisecond || bulk < 0.35*rate {
			t.Errorf("control messages take %v, activations %v, chunks come at %.0f bytes/s", control, tensor, bulk)
		}
		cancel()
		work.Wait()
	})
}

// TestStateThatAllWaitForIsNotHeldBack: an activation waits for a peer that fetches the state which it begins with. Until the
// generation has made a step the chunks have the line, afterwards they give way.
func TestStateThatAllWaitForIsNotHeldBack(t *testing.T) {
	const rate, chunks = 12_500_000, 4
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := emulated(t, 2, LinkConditions{BytesPerS: rate, Delay: 20 * time.Millisecond}, Options{})
		defer c.close()
		sessions := c.sessions(1)
		c.endpoints[0].ServeChunks(library(wire.MaxChunkBytes))
		fetch := func() time.Duration {
			begin := time.Now()
			err := c.endpoints[1].Fetch(t.Context(), c.ids[0], hashes(chunks), func(plan.Hash, []byte) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			return time.Since(begin)
		}
		for step := range 40 { // messages come and go all the while
			tag := wire.Tag{Kind: wire.KindReport, Generation: 1, Step: plan.Step(step)}
			mustSend(t, sessions[0], c.ids[1], tag, payload(100, step))
			mustReceive(t, sessions[1], c.ids[0], tag, payload(100, step))
		}
		before := fetch()
		for _, s := range sessions {
			s.Settled()
		}
		after := fetch()
		t.Logf("%d chunks take %v before the first step, %v after it", chunks, before, after)
		if before >= after {
			t.Error("state that all wait for is held back")
		}
	})
}

// TestPacerTellsAQueueFromABusyProcessor: delays that are long now and then leave the rate alone, a queue that stands lowers it.
func TestPacerTellsAQueueFromABusyProcessor(t *testing.T) {
	const short, long = 0, 3 * pacerQueue
	p := pacer{rate: pacerFirst, limit: true}
	for range 64 {
		p.adjust(short)
		for range pacerLooks - 1 {
			p.adjust(long)
		}
	}
	if p.rate < 8*pacerFirst {
		t.Errorf("%.0f bytes/s beside a busy processor, from %d on", p.rate, pacerFirst)
	}
	for range pacerLooks + 64 {
		p.adjust(long)
	}
	if p.rate != pacerLeast {
		t.Errorf("%.0f bytes/s where a queue stands, want %d", p.rate, pacerLeast)
	}
}
