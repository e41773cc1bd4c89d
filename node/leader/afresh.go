package leader

import (
	"fmt"
	"time"

	"pnode/planner/plan"
)

// afresh waits for those that have what is lacking of every checkpoint, and says how to go on without them. A run that nobody attends begins
// again with its start, which every node can make, once that was lacking for so long.
func afresh(v view, lacks string, since time.Duration) verdict {
	redone := fmt.Sprintf("step 0: steps 1 to %d are trained again", max(v.Checkpoint, v.Newest))
	switch limit := v.Stall.Unattended; {
	case limit == 0:
		return verdict{Blocked: lacks + ". " + anew}
	case since < limit:
		return verdict{Blocked: fmt.Sprintf("%s. After %s without it the run goes on from %s (--on-lost-majority)", lacks, plan.Duration(limit), redone)}
	}
	return verdict{Afresh: true, Why: fmt.Sprintf("no checkpoint is whole with those that are here: the run goes on from %s", redone)}
}
