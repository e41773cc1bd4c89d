package pipeline

import (
	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// part is what an action is about: a micro-batch or, where the schedule cuts sequences, one
// segment of it.
type part struct {
	micro plan.Micro
	model.Segment
}

// part is that with a number of the program.
func (w *Worker) part(number schedule.Micro) part {
	m, segment := w.list.Sequence(number)
	p := part{micro: m}
	if w.list.Segments > 1 {
		p.Segment = model.Segment{Index: segment, Count: w.list.Segments}
	}
	return p
}

// numbered is the number of a part in the program and in the tags of messages. A whole
// micro-batch has that of its first segment.
func (w *Worker) numbered(p part) schedule.Micro {
	return p.micro*schedule.Micro(max(w.list.Segments, 1)) + schedule.Micro(p.Index)
}

// opens and closes tell whether a part's forward, and its backward, is the first and the last
// of its micro-batch on a stage: segments go forward in ascending order, back in descending.
func (p part) opens() bool  { return p.Index == 0 }
func (p part) closes() bool { return p.Index == 0 }

// begins tells whether a part's backward is the first of its micro-batch on a stage.
func (p part) begins() bool { return p.Index == max(p.Count, 1)-1 }

// handing is rows of a boundary tensor that go from one place here to another; the zero value is
// none.
type handing struct{ to, from []kernels.View }

// hand enqueues the copies.
func (w *Worker) hand(h handing) {
	for i, v := range h.from {
		w.queue.Do(kernels.Copy(h.to[i], v, v.Len))
	}
}

// elements counts those of rows.
func elements(rows []kernels.View) (n int) {
	for _, v := range rows {
		n += v.Len
	}
	return n
}
