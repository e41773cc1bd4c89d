package cuda

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pnode/kernels"
)

// TestEvents hands numbers round without kernels: streams wait for each other, and what the driver
// makes for that is used again and given back.
func TestEvents(t *testing.T) {
	f := newFake(t, &plain{}, 1)
	dev := openFake(t, 0)
	x := newBuffer(t, dev, kernels.F32, 8)
	up, down := newQueue(t, dev), newQueue(t, dev)
	const rounds = 1000
	got := make([][]byte, rounds)
	var read kernels.Event
	for i := range got {
		got[i] = make([]byte, 4)
		if i > 0 {
			up.Wait(read)
		}
		up.Write(x.Slice(3, 1), []byte{byte(i), byte(i >> 8), 0, 1})
		down.Wait(up.Record())
		down.Read(got[i], x.Slice(3, 1))
		read = down.Record()
		if i == 0 && slices.Contains(f.calls, eventSynchronize) {
			t.Error("the host waits to order two streams")
		}
	}
	if err := errors.Join(up.Sync(), down.Sync(), read.Sync()); err != nil {
		t.Fatal(err)
	}
	for i, b := range got {
		if !slices.Equal(b, []byte{byte(i), byte(i >> 8), 0, 1}) {
			t.Fatalf("round %d reads %v", i, b)
		}
	}
	if n := len(f.events); n == 0 || n > rounds {
		t.Errorf("%d events for %d places that were marked", n, 2*rounds)
	}
	if err := errors.Join(up.Close(), down.Close()); err != nil {
		t.Error(err)
	}
	if len(f.events) != 0 {
		t.Errorf("%d events are left", len(f.events))
	}
}

// TestEventTimes wants the device's times once clocks were compared.
func TestEventTimes(t *testing.T) {
	f := newFake(t, &plain{}, 1)
	dev := openFake(t, 0)
	x, q := newBuffer(t, dev, kernels.F32, 8), newQueue(t, dev)
	q.Record()
	if err := q.Sync(); err != nil {
		t.Fatal(err)
	}
	first := q.Record()
	q.Do(kernels.Fill(x, 8, 1))
	last := q.Record()
	if err := errors.Join(last.Sync(), first.Sync()); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(f.calls, eventElapsedTime) || last.Time().Before(first.Time()) || first.Time().IsZero() {
		t.Errorf("events came at %v and %v; the device was asked: %v", first.Time(), last.Time(), slices.Contains(f.calls, eventElapsedTime))
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// TestEventErrors lets each function that events use fail.
func TestEventErrors(t *testing.T) {
	f := newFake(t, &plain{}, 1)
	dev := openFake(t, 0)
	x := newBuffer(t, dev, kernels.F32, 8)
	for _, fn := range []function{eventCreate, eventRecord, streamWaitEvent, eventSynchronize} {
		q, other := newQueue(t, dev), newQueue(t, dev)
		f.fail = map[function]result{fn: launchFailed}
		q.Do(kernels.Fill(x, 8, 1))
		e := q.Record()
		other.Wait(e)
		err := errors.Join(e.Sync(), other.Sync())
		f.fail = nil
		if !errors.Is(err, kernels.ErrLost) || !strings.Contains(err.Error(), fn.String()) || !strings.Contains(err.Error(), "cuda:0") {
			t.Errorf("%v fails: %v", fn, err)
		}
		_, _ = q.Close(), other.Close() // may give the same error
	}
	if len(f.events) != 0 {
		t.Errorf("%d events are left", len(f.events))
	}
}
