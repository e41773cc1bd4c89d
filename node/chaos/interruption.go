package chaos

import (
	"context"
	"time"

	"pnode/node/api"
	"pnode/planner/plan"
)

// dialEvery is the time between two attempts to reach a node that starts.
const dialEvery = 200 * time.Millisecond

// told holds the way to the first step of a plan, as a node has told it.
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
	Kind   Kind     `json:"kind"`
	Leader bool     `json:"leader"`
	Rung   api.Rung `json:"rung"`
	Count  int      `json:"count"`
	Total  float64  `json:"total_s"`
	Detect float64  `json:"detect_s"`
	Agree  float64  `json:"agree_s"`
	Save   float64  `json:"save_s"`
	Plan   float64  `json:"plan_s"`
	Load   float64  `json:"load_s"`
	Step   float64  `json:"step_s"`
}

// name returns the fault, whether the node led, and the rung.
func (p Parts) name() string { return nameOf(p.Kind, p.Leader) + ": " + string(p.Rung) }

// explain gives each fault the interruption that followed it first, as the node tells that waited longest.
func (r *Report) explain(all []told) {
	for i := range r.Faults {
		x := &r.Faults[i]
		var first told
		for _, t := range all {
			if t.generation <= x.generation || t.at.Before(x.at) || i+1 < len(r.Faults) && t.at.After(r.Faults[i+1].at) {
				continue
			}
			if first.generation == 0 || t.generation < first.generation || t.generation == first.generation && t.TotalS > first.TotalS {
				first = t
			}
		}
		if first.generation > 0 {
			x.Interruption = &first.Interruption
		}
	}
	r.Parts = partsOf(r.Faults)
}

// partsOf returns the medians of all interruptions, by kind, by whether the node led, and by rung.
func partsOf(faults []Injected) (all []Parts) {
	for _, kind := range Kinds {
		for _, leader := range []bool{false, true} {
			for _, rung := range []api.Rung{api.RungPause, api.RungMemory, api.RungReplay, api.RungCheckpoint} {
				var of []api.Interruption
				for _, x := range faults {
					if x.Kind == kind && x.Leader == leader && x.Interruption != nil && x.Interruption.Rung == rung {
						of = append(of, *x.Interruption)
					}
				}
				if len(of) > 0 {
					all = append(all, medians(Parts{Kind: kind, Leader: leader, Rung: rung, Count: len(of)}, of))
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
