package conform

import (
	"errors"
	"fmt"

	"pnode/kernels"
)

// CheckEvents checks that queues wait for each other where they are told to, and that their
// errors reach those that wait.
func CheckEvents(dev kernels.Device) error {
	for first := range relayQueues {
		if err := checkRelay(dev, first); err != nil {
			return fmt.Errorf("conform: events, queue %d waited for first: %w", first, err)
		}
	}
	if err := checkEventErrors(dev); err != nil {
		return fmt.Errorf("conform: events: %w", err)
	}
	return nil
}

// relayRounds are more than what a queue keeps of events; relayFloats are handed on in each.
const relayRounds, relayFloats = 300, 500

// The queues of a relay.
const (
	relayUp = iota
	relayCompute
	relayDown
	relayQueues
)

// relay hands numbers from one queue to the next, all over the same memory and without a wait on
// the host: up writes them, compute doubles them, down reads what came of it.
type relay struct {
	queues    [relayQueues]kernels.Queue
	in, out   kernels.View
	sent, got [][]float32
}

// checkRelay waits for a given queue first: a device that does everything as late as it may does
// then what that one needs, and no more.
func checkRelay(dev kernels.Device, first int) (err error) {
	r := &relay{}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.open(dev); err != nil {
		return err
	}
	r.run()
	for k := range relayQueues {
		if err := r.queues[(first+k)%relayQueues].Sync(); err != nil {
			return err
		}
	}
	for i, sent := range r.sent {
		for k, x := range r.got[i] {
			if want := 2 * sent[k]; x != want {
				return fmt.Errorf("round %d: element %d is %v, want %v", i, k, x, want)
			}
		}
	}
	return nil
}

func (r *relay) open(dev kernels.Device) (err error) {
	for k := range r.queues {
		if r.queues[k], err = dev.NewQueue(); err != nil {
			return err
		}
	}
	for _, v := range []*kernels.View{&r.in, &r.out} {
		buf, err := dev.Alloc(kernels.F32, relayFloats)
		if err != nil {
			return err
		}
		*v = kernels.Whole(buf)
	}
	return nil
}

func (r *relay) run() {
	up, compute, down := r.queues[relayUp], r.queues[relayCompute], r.queues[relayDown]
	var computed, read kernels.Event
	for i := range relayRounds {
		sent, got := make([]float32, relayFloats), make([]float32, relayFloats)
		for k := range sent {
			sent[k] = float32(i*relayFloats + k)
		}
		r.sent, r.got = append(r.sent, sent), append(r.got, got)
		if i > 0 {
			up.Wait(computed)
		}
		up.Write(r.in, kernels.Float32Bytes(sent))
		compute.Wait(up.Record())
		if i > 0 {
			compute.Wait(read)
		}
		compute.Do(kernels.Add(r.out, r.in, r.in, relayFloats))
		computed = compute.Record()
		down.Wait(computed)
		down.Read(kernels.Float32Bytes(got), r.out)
		read = down.Record()
	}
}

func (r *relay) close() error {
	var errs []error
	for _, q := range r.queues {
		if q != nil {
			errs = append(errs, q.Close())
		}
	}
	for _, v := range []kernels.View{r.in, r.out} {
		if v.Present() {
			v.Buf.Free()
		}
	}
	return errors.Join(errs...)
}

// checkEventErrors wants a queue's error from its events and from who waits for them, and times
// in order.
func checkEventErrors(dev kernels.Device) error {
	var queues [2]kernels.Queue
	for k := range queues {
		var err error
		if queues[k], err = dev.NewQueue(); err != nil {
			return err
		}
	}
	bad, good := queues[0], queues[1]
	first, before := bad.Record(), bad.Record()
	bad.Do(kernels.Call{})
	after := bad.Record()
	good.Wait(before)
	if err := errors.Join(before.Sync(), before.Sync(), good.Sync(), first.Sync()); err != nil {
		return fmt.Errorf("before a bad call: %w", err)
	}
	if before.Time().Before(first.Time()) || first.Time().IsZero() {
		return fmt.Errorf("an event came at %v, one behind it at %v", first.Time(), before.Time())
	}
	if err := after.Sync(); !errors.Is(err, kernels.ErrBadCall) {
		return fmt.Errorf("an event behind a bad call gives %v, want ErrBadCall", err)
	}
	good.Wait(after)
	err := good.Sync()
	if !errors.Is(err, kernels.ErrBadCall) {
		return fmt.Errorf("a queue that waits for one with a bad call gives %v, want ErrBadCall", err)
	}
	_, _ = bad.Close(), good.Close() // give the same error again
	return nil
}
