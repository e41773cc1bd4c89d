package schedule

// WithGather waits ahead of the first forward of each stage that is told to, for the parameters
// that its replicas updated in parts at the end of the step before, and have been exchanging
// since: the gather of a later stage is hidden by what the first micro-batch needs to reach it.
func WithGather(s Schedule, told func(Replica, Stage) bool) Schedule {
	return s.rewrite(func(actions []Action) []Action {
		list := make([]Action, 0, len(actions)+1)
		gathered := map[Action]bool{}
		for _, a := range actions {
			g := Action{Op: Gather, Replica: a.Replica, Stage: a.Stage}
			if a.Op == Forward && !gathered[g] && told(a.Replica, a.Stage) {
				gathered[g] = true
				list = append(list, g)
			}
			list = append(list, a)
		}
		return list
	})
}
