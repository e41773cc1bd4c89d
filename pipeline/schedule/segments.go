package schedule

// Segmented is Seq1F1B: 1F1B over segments of sequences in place of whole ones (Sun et
// al., Seq1F1B, 2024). Forwards of a sequence's n segments come in ascending order,
// backwards in descending order, and worker r starts stages-r-2+n segments ahead, so that
// the last worker has a whole sequence before it turns back. It keeps 1/n of the
// activations per segment in flight; messages are 1/n as large. Shape counts sequences;
// the schedule's micro-batches are segments (Schedule.Segments). A runner that keeps whole
// sequences has as many of them as any segment in flight belongs to (Schedule.Use).
func Segmented(s Shape, n int) (Schedule, error) {
	if err := s.check(); err != nil {
		return Schedule{}, err
	}
	if n < 1 || (int(s.FirstMicro)+s.Micros)*n > MaxNumber {
		return Schedule{}, badField("segments", n, "1 or more, and with the micro-batches a product in range")
	}
	fine := Shape{Replica: s.Replica, Stages: s.Stages, FirstMicro: s.FirstMicro * Micro(n), Micros: s.Micros * n}
	out := Schedule{Workers: make([][]Action, s.Stages), Segments: n}
	if n == 1 {
		out.Segments = 0
	}
	for r := range out.Workers {
		p := program{shape: fine, actions: make([]Action, 0, 2*fine.Micros)}
		warmup := min(s.Stages-r-2+n, fine.Micros-1)
		for i := range fine.Micros + warmup {
			if i < fine.Micros {
				p.put(Forward, r, i)
			}
			if b := i - warmup; b >= 0 {
				p.put(Backward, r, b/n*n+n-1-b%n)
			}
		}
		out.Workers[r] = p.actions
	}
	return out, nil
}
