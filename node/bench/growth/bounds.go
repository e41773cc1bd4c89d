package growth

import (
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// multiplied returns the operations of products and attention in both passes of a micro-batch. Those of the rest are bound by memory.
func multiplied(costs []model.LayerCost) (flops int64) {
	for _, c := range costs {
		flops += c.ForwardFLOPs + c.InputFLOPs + c.WeightFLOPs - c.ForwardElementwise - c.InputElementwise - c.WeightElementwise
	}
	return flops
}

// computing returns the seconds of some operations at a rate.
func computing(flops int64, perSecond float64) float64 { return float64(flops) / perSecond }

// line describes the way between two nodes.
type line struct {
	bytesPerS int64
	latencyS  float64 // one way
}

// travel returns the seconds from the begin of a message to its arrival.
func (l line) travel(bytes int64) float64 { return float64(bytes)/float64(l.bytesPerS) + l.latencyS }

// pipelined returns the least seconds of a step of a pipeline in which a stage does a micro-batch, both passes, in stageS: the first micro-batch goes
// through all stages and its gradient comes back, while the last stage does all the others.
func pipelined(micros, stages int, stageS, hopS float64) float64 {
	return float64(micros+stages-1)*stageS + float64(2*(stages-1))*hopS
}

// summed returns the least seconds in which replicas add up their gradients: each sends and gets every part but its own, twice
// (Patarasuk and Yuan 2009, Bandwidth optimal all-reduce algorithms).
func summed(replicas int, gradientBytes int64, l line) float64 {
	if replicas == 1 {
		return 0
	}
	return 2*float64(replicas-1)/float64(replicas)*float64(gradientBytes)/float64(l.bytesPerS) + 2*l.latencyS
}

// everyStep returns the least seconds of a step of replicas that add their gradients in it: sums travel while others are computed.
func everyStep(computeS, sumS float64) float64 { return max(computeS, sumS) }

// boundaryBytes returns the bytes of a message between two stages in float32.
func boundaryBytes(s plan.RunSpec) int64 {
	return 4 * int64(s.Train.MicroBatch) * int64(s.Model.Context) * int64(s.Model.Channels)
}

// gradientBytes returns the bytes of all gradients in float32.
func gradientBytes(m model.Config) (bytes int64) {
	for l := range m.Layers() {
		bytes += 4 * int64(m.LayerLen(l))
	}
	return bytes - 4*int64(m.TiedLen())
}
