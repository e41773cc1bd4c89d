// Package bearer holds what the holder of an invite's secret signs: that a peer comes in by this invite. The
// signature is checked at the door (admission) and by every node that applies the log (consensus).
//
// It knows nothing of runs, times or uses, which the invite itself says, and imports none of its callers.
package bearer
