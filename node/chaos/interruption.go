package chaos

import (
	"cmp"
	"context"
	"slices"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
)

// dialEvery is the time between two attempts to reach a node that starts.
const dialEvery = 200 * time.Millisecond

// told holds the way to the first step of a plan or of a substitute, as a node has told it.
type told struct {
	api.Interruption
	generation plan.Generation
	at         time.Time
}

// hear sends the fleet what a process of a node tells of interruptions, until the process ends.
func (f *fleet) hear(m *member, p *process) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		<-p.ended
	}()
	for seen := uint64(0); ctx.Err() == nil; {
		client, err := m.client(ctx)
		if err != nil {
			_ = sleep(ctx, dialEvery) // it ends with the process
			continue
		}
		for e, err := range client.Events(ctx) {
			if err != nil || e.Seq <= seen || e.Interruption == nil {
				continue
			}
			seen = e.Seq
			select {
			case f.told <- told{*e.Interruption, e.Generation, time.Now()}:
			case <-f.over:
			}
		}
		client.Close()
	}
}

// Parts are medians of interruptions, in seconds: of the whole, and of the parts that api.Interruption names.
type Parts struct {
	Kind   Kind       `json:"kind"`
	Leader bool       `json:"leader"`
	Rung   api.Rung   `json:"rung"`
	From   api.Source `json:"from,omitempty"` // of a substitute
	Count  int        `json:"count"`
	Total  float64    `json:"total_s"`
	Detect float64    `json:"detect_s"`
	Agree  float64    `json:"agree_s"`
	Save   float64    `json:"save_s"`
	Plan   float64    `json:"plan_s"`
	Load   float64    `json:"load_s"`
	Replay float64    `json:"replay_s"`
	Step   float64    `json:"step_s"`
}

// name returns the fault, whether the node led, the rung, and what a substitute began with.
func (p Parts) name() string {
	name := nameOf(p.Kind, p.Leader) + ": " + string(p.Rung)
	if p.From != "" {
		name += ", " + string(p.From)
	}
	return name
}

// explain gives each fault the interruption that followed it first, and where that was a substitute's the one of the plan after it.
func (r *Report) explain(all []told) {
	for i := range r.Faults {
		x := &r.Faults[i]
		mine := slices.DeleteFunc(slices.Clone(all), func(t told) bool {
			return t.generation < x.generation || t.generation == x.generation && t.Rung != api.RungSubstitute ||
				t.at.Before(x.at) || i+1 < len(r.Faults) && t.at.After(r.Faults[i+1].at)
		})
		if len(mine) == 0 {
			continue
		}
		first := slices.MinFunc(mine, compareTold)
		x.Interruption = &first.Interruption
		mine = slices.DeleteFunc(mine, func(t told) bool { return t.generation <= first.generation })
		if first.Rung == api.RungSubstitute && len(mine) > 0 {
			healed := slices.MinFunc(mine, compareTold)
			x.Healed = &healed.Interruption
		}
	}
	r.Parts = partsOf(r.Faults)
}

// compareTold orders what nodes tell: by generation, then by rank, then whoever waited longest first.
func compareTold(a, b told) int {
	return cmp.Or(cmp.Compare(a.generation, b.generation), a.rank()-b.rank(), cmp.Compare(b.TotalS, a.TotalS))
}

// rank puts the way to a plan before a substitution in it, and the word of the member that computed steps again first, which alone
// knows all parts.
func (t told) rank() int {
	switch {
	case t.Rung != api.RungSubstitute && (t.Rung != api.RungReplay || t.ReplayS > 0):
		return 0
	case t.Rung != api.RungSubstitute:
		return 1
	case t.LoadS > 0:
		return 2
	}
	return 3
}

// partsOf returns the medians of all interruptions, by kind, by whether the node led, by rung, and by what substitutes began with.
func partsOf(faults []Injected) (all []Parts) {
	rungs := []Parts{
		{Rung: api.RungSubstitute, From: api.SourceReplica},
		{Rung: api.RungSubstitute, From: api.SourceReplay},
		{Rung: api.RungPause},
		{Rung: api.RungMemory},
		{Rung: api.RungReplay},
		{Rung: api.RungCheckpoint},
	}
	for _, kind := range Kinds {
		for _, leader := range []bool{false, true} {
			for _, p := range rungs {
				var of []api.Interruption
				for _, x := range faults {
					for _, i := range []*api.Interruption{x.Interruption, x.Healed} {
						if x.Kind == kind && x.Leader == leader && i != nil && i.Rung == p.Rung && i.From == p.From {
							of = append(of, *i)
						}
					}
				}
				if p.Kind, p.Leader, p.Count = kind, leader, len(of); p.Count > 0 {
					all = append(all, medians(p, of))
				}
			}
		}
	}
	return all
}

// medians fills in the medians of some interruptions, of which there is one at least.
func medians(p Parts, of []api.Interruption) Parts {
	for to, part := range map[*float64]func(api.Interruption) float64{
		&p.Total:  func(i api.Interruption) float64 { return i.TotalS },
		&p.Detect: func(i api.Interruption) float64 { return i.DetectS },
		&p.Agree:  func(i api.Interruption) float64 { return i.AgreeS },
		&p.Save:   func(i api.Interruption) float64 { return i.SaveS },
		&p.Plan:   func(i api.Interruption) float64 { return i.PlanS },
		&p.Load:   func(i api.Interruption) float64 { return i.LoadS },
		&p.Replay: func(i api.Interruption) float64 { return i.ReplayS },
		&p.Step:   func(i api.Interruption) float64 { return i.StepS },
	} {
		var values []float64
		for _, i := range of {
			values = append(values, part(i))
		}
		*to = threeOf(values).Median
	}
	return p
}
