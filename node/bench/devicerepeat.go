package bench

import (
	"context"
	"fmt"
	"math"

	"pnode/kernels/devices"
)

func (c repeatCase) String() string {
	return fmt.Sprintf("%d steps of %s in %v", c.steps, c.Name, c.storage)
}

func (b *deviceBench) repeatCells() (cells []cell) {
	for _, c := range b.size.repeats {
		n := float64(c.steps)
		cells = append(cells, cell{
			rows:    []DeviceRow{{Row: rowRepeat, What: fmt.Sprintf("%v again, in another process", c), Unit: "losses the same to the bit"}},
			goals:   []goal{{fmt.Sprintf("all %d", c.steps), func(r DeviceRow) bool { return r.Value == n }, true}},
			measure: func(ctx context.Context, rows []DeviceRow) error { return b.repeat(ctx, &rows[0], c) },
		})
	}
	return cells
}

func (b *deviceBench) repeat(ctx context.Context, row *DeviceRow, c repeatCase) error {
	one, err := b.losses(ctx, c, b.device.Name)
	if err != nil {
		return err
	}
	two, err := b.losses(ctx, c, b.device.Name)
	if err != nil {
		return err
	}
	for i := range one {
		if math.Float64bits(one[i]) == math.Float64bits(two[i]) {
			row.Value++
		}
	}
	row.Note = fell(one)
	return nil
}

func (b *deviceBench) lossCells() (cells []cell) {
	for _, c := range b.size.repeats {
		if c.tolerance == 0 {
			continue
		}
		within := atMost(100*c.tolerance, "%")
		within.always = true
		cells = append(cells, cell{
			rows:    []DeviceRow{{Row: rowLosses, What: fmt.Sprintf("losses of %v beside the processor's", c), Unit: "% apart at most"}},
			goals:   []goal{within},
			measure: func(ctx context.Context, rows []DeviceRow) error { return b.besideCPU(ctx, &rows[0], c) },
		})
	}
	return cells
}

func (b *deviceBench) besideCPU(ctx context.Context, row *DeviceRow, c repeatCase) error {
	device, err := b.losses(ctx, c, b.device.Name)
	if err != nil {
		return err
	}
	processor, err := b.losses(ctx, c, devices.CPU)
	if err != nil {
		return err
	}
	for i := range device {
		row.Value = max(row.Value, 100*math.Abs(device[i]-processor[i])/processor[i])
	}
	row.Note = fell(processor)
	return nil
}

// losses are those of a training in a process of its own.
func (b *deviceBench) losses(ctx context.Context, c repeatCase, device string) (losses []float64, err error) {
	own, err := b.own(ctx, deviceTask{Device: device, Kind: stepTask, Model: c.StepModel, Storage: c.storage, Learn: true})
	if err != nil {
		return nil, err
	}
	defer closing(own, &err)
	a, err := own.ask(stepRequest{Steps: c.steps})
	if err == nil && len(a.Losses) != c.steps {
		err = fmt.Errorf("%d losses, want %d", len(a.Losses), c.steps)
	}
	return a.Losses, err
}

func fell(losses []float64) string {
	return fmt.Sprintf("the loss goes from %.4f to %.4f", losses[0], losses[len(losses)-1])
}
