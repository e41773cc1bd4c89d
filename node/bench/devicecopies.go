package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"pnode/kernels"
	"pnode/pipeline"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/trace"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

func (b *deviceBench) copiesCells() []cell {
	c := b.size.copies
	return []cell{{
		rows: []DeviceRow{{
			Row: rowCopies, Unit: "% of their time",
			What: fmt.Sprintf("copies of messages beside passes, 2 stages of %s", c.Name),
		}},
		goals:   []goal{{}},
		measure: func(ctx context.Context, rows []DeviceRow) error { return b.copies(ctx, &rows[0]) },
	}}
}

// copiesSteps is how many steps are looked at.
const copiesSteps = 3

func (b *deviceBench) copies(ctx context.Context, row *DeviceRow) error {
	c := b.size.copies
	var a answer
	_, err := fitting(c.StepModel, func(m StepModel) (err error) {
		c.StepModel = m
		own, err := b.own(ctx, deviceTask{Kind: copiesTask, Copies: c, Storage: model.StorageBF16})
		if err != nil {
			return err
		}
		defer closing(own, &err)
		a, err = own.ask(stepRequest{Steps: copiesSteps})
		return err
	})
	if err != nil {
		return err
	}
	if a.CopySeconds <= 0 {
		return lacking{errors.New("there were no copies: the device's memory is the host's")}
	}
	row.Value = 100 * a.HiddenSeconds / a.CopySeconds
	row.Note = fmt.Sprintf("both stages on the device, %d micro-batches of %d: copies take %s ms of a step's %s",
		c.Micros, c.Batch, figure(1e3*a.CopySeconds/copiesSteps), figure(1e3*a.Seconds/copiesSteps))
	if !a.DeviceClock {
		row.Note += "; " + withoutClock + ", by which these times are"
	}
	return nil
}

// overlap trains two stages on the device for a step and these, which are traced, and adds up the
// copies of messages and what of them is beside passes of the same stage.
func (t deviceTask) overlap(ctx context.Context, device kernels.Device, steps int) (a answer, err error) {
	c := t.Copies
	train := training{StepModel: c.StepModel, device: device, storage: t.Storage, micros: c.Micros, lr: 1e-4, data: randomTokens{c.StepModel}}
	folder, err := os.MkdirTemp("", "pnode-bench-")
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	path := filepath.Join(folder, "trace.json")
	if err := train.traced(ctx, path, 1+steps); err != nil {
		return a, err
	}
	file, err := os.Open(path)
	if err != nil {
		return a, err
	}
	defer file.Close()
	read, err := trace.Read(file)
	if err != nil {
		return a, err
	}
	for _, k := range read.Keys() {
		if k.Step > 1 && k.Step <= plan.Step(1+steps) {
			a.Seconds += float64(read.Timeline(k).Makespan) / 1e9
		}
	}
	a.CopySeconds, a.HiddenSeconds = hidden(read, 2, plan.Step(1+steps))
	a.DeviceClock, err = hasClock(device)
	return a, err
}

// hidden adds up the seconds of the copies in steps from first to last, and those in which the
// worker that copies computed. Its passes come one after the other.
func hidden(t trace.Trace, first, last plan.Step) (all, beside float64) {
	for _, c := range t.Copies {
		if c.Step < first || c.Step > last {
			continue
		}
		all += float64(c.End-c.Start) / 1e9
		for _, s := range t.Spans {
			if s.Worker == c.Worker && computes(s.Action.Op) {
				beside += float64(max(0, min(s.End, c.End)-max(s.Start, c.Start))) / 1e9
			}
		}
	}
	return all, beside
}

func computes(op schedule.Op) bool {
	switch op {
	case schedule.Forward, schedule.Backward, schedule.BackwardInput, schedule.BackwardWeight:
		return true
	}
	return false
}

// aheadMicros is how many micro-batches the first stage is ahead: as a plan has it which hides a
// link, so that there is something to compute while messages come.
const aheadMicros = 3

// traced trains two stages for some steps.
func (t training) traced(ctx context.Context, path string, steps int) (err error) {
	recorder, err := trace.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, recorder.Close()) }()
	plan, post := t.stages(0, t.config().Layers()/2), &postOffice{boxes: map[address]chan []byte{}}
	plan.Replicas[0].Warmups[0] = min(aheadMicros, t.micros-1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := countdown{left: steps * len(plan.Workers()), end: cancel}
	group, ctx := errgroup.WithContext(ctx)
	var workers []*pipeline.Worker
	defer func() {
		for _, w := range workers {
			w.Close()
		}
	}()
	for _, seat := range plan.Workers() {
		c := t.worker(plan, seat)
		c.Exchange, c.Trace, c.OnStep = counter{post, seat.Peer}, recorder, func(pipeline.StepResult) { over.one() }
		w, err := pipeline.New(c)
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	for _, w := range workers {
		group.Go(func() error { return w.Run(ctx, ctx) })
	}
	if err := group.Wait(); !over.done() {
		return err
	}
	return nil
}

// countdown ends something after so many.
type countdown struct {
	mu   sync.Mutex // guards left
	left int
	end  func()
}

func (c *countdown) one() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left == 0 {
		c.end()
	}
}

func (c *countdown) done() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left <= 0
}

// postOffice joins the workers of one process; a counter is one peer's end of it.
type postOffice struct {
	mu    sync.Mutex // guards boxes
	boxes map[address]chan []byte
}

type address struct {
	from, to plan.PeerID
	tag      wire.Tag
}

type counter struct {
	post *postOffice
	self plan.PeerID
}

// box is where one message is left.
func (p *postOffice) box(a address) chan []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.boxes[a] == nil {
		p.boxes[a] = make(chan []byte, 1)
	}
	return p.boxes[a]
}

func (p *postOffice) remove(a address) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.boxes, a)
}

func (c counter) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	select {
	case c.post.box(address{c.self, to, f.Tag}) <- f.Payload:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c counter) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	at := address{from, c.self, tag}
	select {
	case payload := <-c.post.box(at):
		c.post.remove(at) // a tag is used once
		return payload, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
