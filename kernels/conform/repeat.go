package conform

import (
	"bytes"
	"fmt"

	"pnode/kernels"
)

// CheckRepeats runs one case twice, each time on memory of its own, and wants the same bits.
func CheckRepeats(dev kernels.Device, q kernels.Queue, c Case) error {
	t := newTrial(c)
	first, err := t.results(dev, q)
	if err != nil {
		return fmt.Errorf("conform: %v: %w", c, err)
	}
	return t.repeat(dev, q, first)
}

// repeat runs the case once more and wants the bytes of the first time.
func (t *trial) repeat(dev kernels.Device, q kernels.Queue, first [][]byte) error {
	second, err := t.results(dev, q)
	if err != nil {
		return fmt.Errorf("conform: %v: again: %w", t.c, err)
	}
	for k, o := range kernels.Info(t.c.Call.Op).Operands {
		if !bytes.Equal(first[k], second[k]) {
			return fmt.Errorf("conform: %v: operand %s has other bits the second time", t.c, o.Name)
		}
	}
	return nil
}

// results runs the case and gives the bytes of its operands, nil for scratch, for absent ones and
// for those whose memory is an output's.
func (t *trial) results(dev kernels.Device, q kernels.Queue) ([][]byte, error) {
	own, err := t.on(dev, q)
	defer own.close()
	if err != nil {
		return nil, err
	}
	q.Do(own.call)
	raw := make([][]byte, len(own.operands))
	for k, o := range own.operands {
		if o == nil || o.Role == kernels.Scratch || t.c.gives(k) {
			continue
		}
		raw[k] = make([]byte, len(o.raw))
		q.Read(raw[k], kernels.Whole(o.view.Buf))
	}
	return raw, q.Sync()
}
