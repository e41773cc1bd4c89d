package consensus

import (
	"testing"

	"pnode/planner/plan"
)

// However many checkpoints are kept and however often they are made, one is there of JumpReach steps before the
// newest and few more than were asked for.
func TestACheckpointOfBeforeAJumpIsKept(t *testing.T) {
	apart := plan.Plan{Local: &plan.Local{Rounds: plan.Rounds{Every: 50, Fragments: 1}}}
	if jumpReach(plan.Plan{}) != JumpReach || jumpReach(apart) != JumpReach+50 {
		t.Error("with local steps what is kept reaches a round farther back")
	}
	for _, keep := range []int{0, 1, 2, 3, 8, 20} {
		for _, every := range []plan.Step{1, 2, 3, 7, 8, 50} {
			keptFor(t, keep, every, JumpReach)
		}
		keptFor(t, keep, 50, jumpReach(apart))
	}
}

func keptFor(t *testing.T, keep int, every, far plan.Step) {
	var older []Checkpoint
	for newest := every; newest < 400; newest += every {
		older = retain(older, Checkpoint{Step: newest}, far, keep, 0, true)
		if most := min(MaxOlder, max(0, keep-1)+2); len(older) > most {
			t.Fatalf("keep %d, every %d: %d older ones than step %d, at most %d", keep, every, len(older), newest, most)
		}
		reach := plan.Step(0)
		for i, c := range older {
			if c.Step+far <= newest {
				reach = max(reach, c.Step)
			}
			if i > 0 && c.Step >= older[i-1].Step {
				t.Fatalf("keep %d, every %d: %v is not in order", keep, every, older)
			}
			if i < min(keep-1, MaxOlder-2) && c.Step != newest-every*plan.Step(i+1) {
				t.Fatalf("keep %d, every %d: one of the newest is missing", keep, every)
			}
		}
		if newest > far+every && (reach == 0 || newest-reach > 2*(far+every)) {
			t.Fatalf("keep %d, every %d: at step %d the way back leads to step %d", keep, every, newest, reach)
		}
		older = append([]Checkpoint{{Step: newest}}, older...)
	}
}
