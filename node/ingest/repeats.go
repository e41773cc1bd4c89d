package ingest

import (
	"fmt"

	"pnode/planner/plan"
)

// manyPasses is how often a model may see the same text until more steps teach it next to nothing: repeated tokens count for less each time,
// and for nothing after some 40 (Muennighoff et al. 2023, arXiv 2305.16264, section 6).
const manyPasses = 40

// Repeats warns of a run that goes through its text more than manyPasses times; it is empty for others.
func Repeats(spec plan.RunSpec) string {
	width := int64(1)
	if t := spec.Data.Tokens; t != nil {
		width = int64(max(t.WidthBytes, 1))
	}
	own := float64(spec.Data.SizeBytes/width) * float64(1000-spec.Data.HeldOutPermille) / 1000
	trained := float64(spec.Train.Steps) * float64(spec.Train.Micros) * float64(spec.Train.MicroBatch) * float64(spec.Model.Context)
	if own <= 0 || trained <= manyPasses*own {
		return ""
	}
	return fmt.Sprintf("warning: the run goes through this text %.0f times, and the model will learn it by heart: give it more text with --data, or fewer --steps", trained/own)
}
