package pipeline

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"pnode/kernels/cpu"
	"pnode/pipeline/collective"
	"pnode/pipeline/model"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// narrowExchange has room for few held-out messages from one peer to another.
type narrowExchange struct {
	collective.MemoryEnd
	first int32 // held-out message
	rooms *sync.Map
}

func (e narrowExchange) room(from, to plan.PeerID) chan struct{} {
	room, _ := e.rooms.LoadOrStore([2]plan.PeerID{from, to}, make(chan struct{}, 2))
	return room.(chan struct{})
}

func (e narrowExchange) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	if f.Tag.Kind == wire.Activation && f.Tag.Index >= e.first {
		select {
		case e.room(e.Self, to) <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return e.MemoryEnd.Send(ctx, to, f)
}

func (e narrowExchange) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	payload, err := e.MemoryEnd.Receive(ctx, from, tag)
	if err == nil && tag.Kind == wire.Activation && tag.Index >= e.first {
		<-e.room(from, e.Self)
	}
	return payload, err
}

// manyHeldOut has as many held-out micro-batches as are asked for.
type manyHeldOut struct{ patterned }

func (manyHeldOut) HeldOutMicros(_, most int) int { return most }

// TestEvaluationsNeedLittleRoom: two workers with several chains of stages evaluate over links that
// hold two messages each way, in the precision of the stages and in float32.
func TestEvaluationsNeedLittleRoom(t *testing.T) {
	run := deep()
	run.Train.Steps, run.Train.HeldOutEvery = 1, 1
	run.Train.Storage = plan.Storage(model.StorageBF16)
	for _, text := range []string{"1f1b", "interleaved:v=2", "zb-v"} {
		plan := scheduled(t, run, text, 2)
		synctest.Test(t, func(t *testing.T) {
			net, rooms := collective.NewMemory(), &sync.Map{}
			var workers []*Worker
			for _, seat := range plan.Workers() {
				device, err := cpu.New(cpu.Options{Threads: 1})
				if err != nil {
					t.Fatal(err)
				}
				defer device.Close()
				w, err := New(usual(Config{
					Worker: seat, Run: run, Plan: plan, Device: device, Data: manyHeldOut{patterned{run.Model.Context}},
					Exchange: narrowExchange{net.End(seat.Peer), int32(run.Train.Micros), rooms},
					OnStep: func(r StepResult) {
						if r.HeldOut == nil || r.HeldOutF32 == nil {
							t.Errorf("%s: step %d: not evaluated", text, r.Step)
						}
					},
				}))
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				workers = append(workers, w)
			}
			runAll(t, workers)
		})
	}
}
