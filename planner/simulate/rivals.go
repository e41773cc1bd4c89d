package simulate

import (
	"math"

	"pnode/planner/holders"
)

// checkpointRestart starts everything again from the newest checkpoint after each loss, and stops steps to make one, as Varuna
// (Athlur et al., EuroSys 2022).
type checkpointRestart struct{}

func (checkpointRestart) Name() string { return "checkpoint-restart" }

func (checkpointRestart) Habits(Constants, Facts) Habits { return Habits{UsefulPermille: 1000} }

// Saves saves as often as Young's rule says for its own cost, unless the constants do.
func (checkpointRestart) Saves(c Constants, f Facts, losses holders.Rate) Saving {
	if c.CheckpointSteps > 0 {
		return Saving{EverySteps: c.CheckpointSteps, StopNanos: c.CheckpointNanos}
	}
	stop := c.store(f.SaveBytes)
	return Saving{EveryNanos: root(2*(stop/milli)*(losses.Between()/milli)) * milli, StopNanos: stop}
}

// root returns the integer square root of n, which is at least 0.
func root(n int64) int64 {
	r := int64(math.Sqrt(float64(max(n, 0)))) // off by one at most, on any machine
	for r > 0 && r*r > n {
		r--
	}
	for (r+1)*(r+1) <= n {
		r++
	}
	return r
}

func (checkpointRestart) Lost(c Constants, l Loss) Answer {
	return Answer{Ends: true, StopNanos: c.NoticedNanos, Back: true}
}

func (checkpointRestart) Change(c Constants, f Facts, _ int64) int64 {
	if c.RestartNanos > 0 {
		return c.RestartNanos
	}
	return c.change() + f.LoadNanos
}

// templates has plans for every number of machines ready, and gives up the step of a loss, as Oobleck (Jang et al., SOSP 2023).
type templates struct{}

func (templates) Name() string { return "templates" }

func (templates) Habits(Constants, Facts) Habits { return Habits{UsefulPermille: 1000} }

// Saves is in the background: replicas hold the state, and a checkpoint is for the loss of all copies of a layer.
func (templates) Saves(_ Constants, f Facts, losses holders.Rate) Saving {
	s := pnode{}.Saves(Constants{}, f, losses)
	s.AtChange = false
	return s
}

func (templates) Lost(c Constants, l Loss) Answer {
	return Answer{Ends: true, StopNanos: c.NoticedNanos + c.given(l), Back: !l.InMemory}
}

func (templates) Change(c Constants, _ Facts, moveNanos int64) int64 {
	return c.change() + c.move(moveNanos)
}

// redundant has each machine compute its neighbour's forwards too, so that it can take that one's place, as Bamboo (Thorpe et
// al., NSDI 2023).
type redundant struct{}

func (redundant) Name() string { return "redundant" }

func (redundant) Habits(c Constants, f Facts) Habits {
	if c.RedundantUseful > 0 {
		return Habits{UsefulPermille: c.RedundantUseful}
	}
	return Habits{UsefulPermille: 1_000_000 / (1000 + f.ForwardPermille)}
}

// Saves is in the background, as with templates.
func (redundant) Saves(_ Constants, f Facts, losses holders.Rate) Saving {
	s := pnode{}.Saves(Constants{}, f, losses)
	s.AtChange = false
	return s
}

// Lost has the neighbour do the backwards of a lost machine too. Where that is lost as well, all go back.
func (redundant) Lost(c Constants, l Loss) Answer {
	switch fatal := l.Neighbours && !l.InMemory; {
	case fatal:
		return Answer{Ends: true, StopNanos: c.NoticedNanos + c.RendezvousNanos + c.given(l), Back: true}
	case c.WholeStep:
		return Answer{Ends: true, StopNanos: c.NoticedNanos + c.given(l)}
	case l.InStep && l.Machines == 1:
		l.BusyNanos -= mulDiv(l.BusyNanos, l.ForwardPermille, 1000)
		return Answer{Extends: l.carry(c.NoticedNanos+c.AgreedNanos, l.BusyNanos)}
	}
	return Answer{Ends: true, StopNanos: c.NoticedNanos}
}

func (redundant) Change(c Constants, _ Facts, moveNanos int64) int64 {
	if c.FailoverNanos > 0 {
		return c.FailoverNanos
	}
	return c.change() + c.move(moveNanos)
}
