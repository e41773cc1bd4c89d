package model

import (
	"errors"

	"pnode/kernels"
)

// writeConstants fills what depends on positions alone.
func (s *Stack) writeConstants() error {
	m := s.cfg.Model.Resolved()
	if err := writeTables(s.cfg.Device, m, s.rotary); err != nil || !m.slides() || s.Masked() {
		return err
	}
	return writeOnce(s.cfg.Device, func(q kernels.Queue) {
		q.Write(s.starts, kernels.Int32Bytes(m.windowStarts(s.cfg.MicroBatch)))
	})
}

// writeOnce waits for what f writes through a queue of its own.
func writeOnce(d kernels.Device, f func(kernels.Queue)) error {
	q, err := d.NewQueue()
	if err != nil {
		return err
	}
	f(q)
	return errors.Join(q.Sync(), q.Close())
}

// windowStarts are the first positions that the queries [batch,T] see.
func (c Config) windowStarts(batch int) []int32 {
	var starts []int32
	for range batch {
		for t := range c.Context {
			starts = append(starts, c.windowStart(t))
		}
	}
	return starts
}

// windowStart is the first position that the query at t sees.
func (c Config) windowStart(t int) int32 {
	if c.Window == 0 {
		return 0
	}
	return int32(max(0, t-c.Window+1))
}
