package node

import (
	"pnode/node/dataset"
	"pnode/pipeline/model"
	"pnode/planner"
	"pnode/planner/plan"
)

// processBytes is the host memory of a node besides its stages and the text: the program, the
// network, the store. 61 and 63 MiB were measured with stages of 60 and 337 MiB.
const processBytes = 62 << 20

// PlanInput returns what a run's first plan depends on, without the members.
func PlanInput(run plan.RunSpec) planner.Input {
	in := planner.Input{
		Run: run, Costs: run.Model.Costs(run.Train.MicroBatch, model.StorageF32), Generation: 1,
		NodeBytes: processBytes + min(run.Data.SizeBytes, dataset.CacheBytes),
	}
	if run.Train.Storage.Halves() {
		in.HalfCosts = run.Model.Costs(run.Train.MicroBatch, model.StorageBF16)
	}
	return in
}
