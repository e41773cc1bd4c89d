package conform_test

import (
	"testing"

	"pnode/kernels"
	"pnode/kernels/conform"
	"pnode/kernels/cpu"
)

// deaf is a device one of whose queues drops every other wait: those of a phase.
type deaf struct {
	kernels.Device
	made, queue, phase int
}

type deafQueue struct {
	kernels.Queue
	phase, waits int
}

func (d *deaf) NewQueue() (kernels.Queue, error) {
	q, err := d.Device.NewQueue()
	if d.made++; d.made-1 == d.queue {
		return &deafQueue{Queue: q, phase: d.phase}, err
	}
	return q, err
}

func (q *deafQueue) Wait(e kernels.Event) {
	if q.waits++; q.waits%2 != q.phase {
		q.Queue.Wait(e)
	}
}

// TestFindsDroppedWaits: on a device that does everything as late as it may, each kind of wait is
// needed.
func TestFindsDroppedWaits(t *testing.T) {
	processor, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := processor.Close(); err != nil {
			t.Error(err)
		}
	}()
	late := &conform.Late{Device: processor}
	if err := conform.CheckEvents(late); err != nil {
		t.Error(err)
	}
	for queue := range 3 { // of a relay
		for phase := range 2 {
			noticed := false
			for first := range 3 { // relays before this one
				bad := &deaf{Device: late, queue: 3*first + queue, phase: phase}
				noticed = noticed || conform.CheckEvents(bad) != nil
			}
			if !noticed {
				t.Errorf("queue %d drops half of its waits (%d), and nobody notices", queue, phase)
			}
		}
	}
}
