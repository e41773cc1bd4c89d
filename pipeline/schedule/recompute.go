package schedule

// WithRecompute restores the activations of the chosen stages right ahead of each backward
// and of the receive of its gradient, so that it runs while the gradient is waited for
// (Chen et al., 2016; ahead of the gradient: Varuna, EuroSys 2022, Mario, PPoPP 2025). Nothing
// comes between the two, whatever else the worker holds: so what is restored needs room once a
// stage, and no schedule is slower than with the same in its backwards. Where the gradient is
// made by the same worker there is no wait to use, and it is as fast.
func WithRecompute(s Schedule, chosen func(Replica, Stage) bool) Schedule {
	return s.rewrite(func(actions []Action) []Action {
		list := make([]Action, 0, len(actions)+len(actions)/2)
		received := map[Action]bool{}
		for _, a := range actions {
			r := a.with(Recompute)
			backward := a.Op == ReceiveGradient || a.Op == Backward || a.Op == BackwardInput
			if backward && !received[r] && chosen(a.Replica, a.Stage) {
				received[r] = true
				list = append(list, r)
			}
			list = append(list, a)
		}
		return list
	})
}
