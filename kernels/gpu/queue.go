package gpu

import (
	"errors"
	"fmt"
	"slices"

	"pnode/kernels"
)

// queue executes calls as launches on a stream, and keeps the first error.
type queue struct {
	dev    *Device
	stream Stream
	err    error
	plan   Plan

	scratch buffer // what launches of one call pass to each other
	fault   buffer // the fault word
	checked bool   // whether a call since the last Sync may have set it
	marks   marks
}

// faultBytes is the size of the fault word.
const faultBytes = 4

func (q *queue) Do(c kernels.Call) {
	if q.err != nil {
		return
	}
	if q.err = q.dev.Supports(c); q.err != nil {
		return
	}
	q.plan.Make(c)
	q.checked = q.checked || q.plan.Checked
	if err := q.give(q.stream.Execute); err != nil {
		q.err = fmt.Errorf("%s: %v: %w", q.dev.Name(), c, err)
	}
}

// Prepare takes the scratch memory of a call, and what its launches need.
func (q *queue) Prepare(c kernels.Call) error {
	if err := q.dev.Supports(c); err != nil {
		return err
	}
	q.plan.Make(c)
	if err := q.give(q.stream.Prepare); err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	return nil
}

// give gives the stream the launches of the queue's plan.
func (q *queue) give(to func([]Launch) error) error {
	if err := q.reserve(4 * q.plan.ScratchFloats); err != nil {
		return err
	}
	for i := range q.plan.Launches {
		q.resolve(&q.plan.Launches[i])
	}
	return to(q.plan.Launches)
}

// reserve makes the scratch memory hold so many bytes. Launches that use the old one are waited for.
func (q *queue) reserve(bytes int) error {
	if bytes <= q.scratch.bytes {
		return nil
	}
	next := buffer{dev: q.dev}
	if err := next.take(bytes); err != nil {
		return err
	}
	old := q.scratch
	q.scratch = next
	if old.memory == 0 {
		return nil
	}
	return errors.Join(q.stream.Sync(), old.release())
}

// resolve turns the arguments of a launch into the parameters of its kernel.
func (q *queue) resolve(l *Launch) {
	for _, a := range l.Args {
		switch a.Kind {
		case View:
			var memory Memory
			if a.View.Present() {
				memory = a.View.Buf.(*buffer).memory
			}
			l.array(memory, uint64(a.View.Off))
		case Scratch:
			l.array(q.scratch.memory, a.Bits)
		case Fault:
			l.Params = append(l.Params, Param{uint64(q.fault.memory), longBytes})
		case Word:
			l.Params = append(l.Params, Param{a.Bits, wordBytes})
		case Long:
			l.Params = append(l.Params, Param{a.Bits, longBytes})
		}
	}
}

func (q *queue) Write(dst kernels.View, src []byte) {
	q.transfer(dst, len(src), func(m Memory, at int) error { return q.stream.Write(m, at, src) })
}

func (q *queue) Read(dst []byte, src kernels.View) {
	q.transfer(src, len(dst), func(m Memory, at int) error { return q.stream.Read(dst, m, at) })
}

// transfer enqueues a copy of so many bytes between a view and host memory.
func (q *queue) transfer(v kernels.View, bytes int, by func(m Memory, at int) error) {
	if q.err != nil {
		return
	}
	err := v.CheckTransfer(bytes)
	if err == nil {
		err = q.dev.owns(v)
	}
	if err == nil && bytes > 0 {
		err = by(v.Buf.(*buffer).memory, v.Off*v.Buf.DType().SizeBytes())
	}
	if err != nil {
		q.err = fmt.Errorf("%s: transfer of %d bytes: %w", q.dev.Name(), bytes, err)
	}
}

// Sync waits even after an error: a transfer may still be under way.
func (q *queue) Sync() error {
	err := q.stream.Sync()
	if err != nil {
		q.marks.fail(q.dev.driver, err)
	} else if q.err == nil && q.checked {
		err = q.readFault()
		q.checked = false
	}
	if err == nil {
		err = q.marks.all(q.stream, q.dev.driver)
	}
	if q.err == nil && err != nil {
		q.err = fmt.Errorf("%s: %w", q.dev.Name(), err)
	}
	return q.err
}

// readFault is the error of a kernel that met a bad index.
func (q *queue) readFault() error {
	var word [faultBytes]byte
	if err := q.dev.driver.Peek(word[:], q.fault.memory); err != nil {
		return err
	}
	if op := kernels.Op(word[0]); op != 0 { // operations are bytes, the word is little endian
		operands := kernels.Info(op).Operands
		i := slices.IndexFunc(operands, func(o kernels.Operand) bool { return o.DType == kernels.I32 }) // calls that check have one
		return fmt.Errorf("%w: gpu: %v: an element of %s is out of range", kernels.ErrBadCall, op, operands[i].Name)
	}
	return nil
}

// Close waits like Sync and gives back what the queue holds.
func (q *queue) Close() error {
	err := q.Sync()
	released := errors.Join(q.scratch.release(), q.fault.release(), q.marks.drop(q.dev.driver), q.stream.Close())
	if err == nil {
		err = released
	}
	return err
}
