package conform

import (
	"bytes"
	"fmt"

	"pnode/kernels"
)

// CheckRepeats runs one case twice, each time on memory of its own, and wants the same bits.
func CheckRepeats(dev kernels.Device, q kernels.Queue, c Case) error {
	first, err := results(dev, q, c)
	if err != nil {
		return fmt.Errorf("conform: %v: %w", c, err)
	}
	second, err := results(dev, q, c)
	if err != nil {
		return fmt.Errorf("conform: %v: again: %w", c, err)
	}
	for k, o := range kernels.Info(c.Call.Op).Operands {
		if !bytes.Equal(first[k], second[k]) {
			return fmt.Errorf("conform: %v: operand %s has other bits the second time", c, o.Name)
		}
	}
	return nil
}

// results runs a case and gives the bytes of its operands, nil for scratch and absent ones.
func results(dev kernels.Device, q kernels.Queue, c Case) ([][]byte, error) {
	t, err := newTrial(dev, q, c)
	defer t.close()
	if err != nil {
		return nil, err
	}
	q.Do(t.call)
	raw := make([][]byte, len(t.operands))
	for k, o := range t.operands {
		if o == nil || o.Role == kernels.Scratch {
			continue
		}
		raw[k] = make([]byte, len(o.raw))
		q.Read(raw[k], kernels.Whole(o.view.Buf))
	}
	return raw, q.Sync()
}
