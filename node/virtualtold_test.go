package node

import (
	"fmt"
	"math"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// toldOf returns what is wrong with what a node has told of a substitute and of the interruption until its first step.
func (n *Node) toldOf(s consensus.Substitute) error {
	named, back := 0, 0
	for _, h := range n.monitor.History().Happened {
		e := h.Event
		if e.Generation != s.Generation {
			continue
		}
		if e.Kind == api.KindSubstitute {
			named++
		}
		i := e.Interruption
		if i == nil || i.Rung != api.RungSubstitute {
			continue
		}
		back++
		parts := i.DetectS + i.AgreeS + i.LoadS + i.ReplayS + i.StepS
		switch replays := i.From == api.SourceReplay; {
		case math.Abs(parts-i.TotalS) > 1e-6 || i.SaveS+i.PlanS != 0 || i.TotalS <= 0:
			return fmt.Errorf("the parts of %+v do not add up", *i)
		case replays != s.Replays, e.Step != i.Last+1:
			return fmt.Errorf("%+v with step %d, of %+v", *i, e.Step, s)
		case n.self != s.By && i.LoadS+i.ReplayS > 0, n.self == s.By && replays && i.ReplayS == 0:
			return fmt.Errorf("%s has computed again for %v s", n.self.Short(), i.ReplayS)
		}
	}
	if named != 1 || back != 1 {
		return fmt.Errorf("%d substitutes and %d interruptions were told, want 1 of each", named, back)
	}
	return nil
}

// tells checks what the nodes with a part in a plan have told of its substitute.
func (f *fleet) tells(p plan.Plan, s consensus.Substitute) {
	f.Helper()
	for _, m := range f.members {
		if n := m.node(); n != nil && n.self != s.Lost && p.Places(n.self) {
			if err := n.toldOf(s); err != nil {
				f.Errorf("%s: %v", m.name(), err)
			}
		}
	}
}
