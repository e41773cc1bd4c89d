package schedule

// ReduceInWaits hands each stage's gradient in, in the first slot in which its worker
// would compute nothing, after the stage's last weight gradient (Li and Hoefler, Chimera,
// SC 2021, section 3.2): without delay for what others wait for. Reductions that find no
// such slot come at the end.
func ReduceInWaits(s Schedule, t Timing) (Schedule, error) {
	line, err := Simulate(s, t)
	if err != nil {
		return Schedule{}, err
	}
	out := Schedule{Workers: make([][]Action, len(s.Workers)), Segments: s.Segments}
	for w, spans := range line.Workers {
		out.Workers[w] = reduceInWaits(spans)
	}
	return out, nil
}

func reduceInWaits(spans []Span) []Action {
	left := map[Action]int{} // reduction -> weight gradients to come
	for _, span := range spans {
		if accumulates(span.Action.Op) {
			left[span.Action.reduction()]++
		}
	}
	var due, list []Action
	for i, span := range spans {
		if i > 0 && len(due) > 0 && (span.Start > spans[i-1].End || span.Action.Op == Step) {
			list, due = append(list, due...), nil
		}
		list = append(list, span.Action)
		if r := span.Action.reduction(); accumulates(span.Action.Op) {
			if left[r]--; left[r] == 0 {
				due = append(due, r)
			}
		}
	}
	return append(list, due...)
}

// WithGather collects the sharded parameters of the chosen stages ahead of each run of
// forwards or of backwards of one stage, and drops them after it unless the other
// direction is in a run of that stage too. It comes so many actions before the run as
// ahead says: a gather that takes as long as they do is hidden.
func WithGather(s Schedule, chosen func(Replica, Stage) bool, ahead int) Schedule {
	return s.rewrite(func(actions []Action) []Action {
		before, after := map[int][]Action{}, map[int][]Action{}
		for _, run := range gatherRuns(actions) {
			if stage := run.stage; chosen(stage.Replica, stage.Stage) {
				at := max(run.from-max(ahead, 0), run.free)
				before[at] = append(before[at], stage.with(Gather))
				after[run.to] = append(after[run.to], stage.with(Free))
			}
		}
		list := make([]Action, 0, len(actions)+2*len(before))
		for i, a := range actions {
			list = append(append(append(list, before[i]...), a), after[i]...)
		}
		return list
	})
}

// run is where a stage's parameters are needed: actions from to to. free is after the run
// of that stage before.
type run struct {
	stage          Action // its reduction, which names the stage
	from, to, free int
}

// gatherRuns are the runs of a program, those of one stage that overlap joined.
func gatherRuns(actions []Action) []run {
	var runs []run
	latest := map[Action]int{} // stage -> its newest run
	var current [2]int         // by direction: the newest run, +1
	for i, a := range actions {
		if !a.Op.hasMicro() || a.Op.communicates() {
			continue
		}
		direction := 0
		if a.Op != Forward {
			direction = 1
		}
		stage := a.reduction()
		k, seen := latest[stage]
		switch open := current[0] == k+1 || current[1] == k+1; {
		case seen && open:
			runs[k].to = i
		case seen:
			runs = append(runs, run{stage, i, i, runs[k].to + 1})
		default:
			runs = append(runs, run{stage, i, i, 0})
		}
		if !seen || runs[len(runs)-1].from == i {
			k = len(runs) - 1
			latest[stage] = k
		}
		current[direction] = k + 1
	}
	return runs
}
