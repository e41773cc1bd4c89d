package schedule

// WithGather waits ahead of each stage's first forward for the parameters that its replicas
// updated in parts at the end of the step before, and have been exchanging since: the gather
// of a later stage is hidden by what the first micro-batch needs to reach it.
func WithGather(s Schedule) Schedule {
	return s.rewrite(func(actions []Action) []Action {
		list := make([]Action, 0, len(actions)+1)
		gathered := map[Action]bool{}
		for _, a := range actions {
			g := Action{Op: Gather, Replica: a.Replica, Stage: a.Stage}
			if a.Op == Forward && !gathered[g] {
				gathered[g] = true
				list = append(list, g)
			}
			list = append(list, a)
		}
		return list
	})
}
