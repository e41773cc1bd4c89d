package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// deadLink is an exchange whose sends fail.
type deadLink struct{ collective.MemoryEnd }

func (deadLink) Send(context.Context, plan.PeerID, wire.Frame) error { return errDead }

// TestALostSendSaysWhy: a reduction, which a lost send cancels, ends first, and the program itself
// meets no more than the end of its context. It ends with the reason why the send was lost.
func TestALostSendSaysWhy(t *testing.T) {
	run := testRun()
	p := cut(run, "1f1b", []int{0, 2})
	synctest.Test(t, func(t *testing.T) {
		device, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer device.Close()
		memory, err := device.Alloc(kernels.F32, 8)
		if err != nil {
			t.Fatal(err)
		}
		defer memory.Free()
		h := &stageRun{StageRuntime: &StageRuntime{pipe: p.Replicas[0], codecs: []wire.Codec{wire.F32, wire.F32}}}
		if h.downloads, err = newCopyQueue(device); err != nil {
			t.Fatal(err)
		}
		defer h.downloads.queue.Close()
		s := &stepRun{program: program{spec: run, plan: p}, cfg: &Config{Exchange: deadLink{}}, queue: h.downloads.queue, step: 2}
		s.begin(t.Context())
		s.group.Go(func() error {
			<-s.ctx.Done()
			return s.ctx.Err()
		})
		tag := wire.Tag{Kind: wire.Activation, Step: 2, Stage: 1}
		sent, err := s.send(h, []kernels.View{kernels.Whole(memory)}, tag)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := s.fail(s.ctx.Err()); !errors.Is(err, errDead) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the death of the replica and the end of the context", err)
		}
		<-sent.done
	})
}
