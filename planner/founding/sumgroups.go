package founding

import (
	"fmt"

	"pnode/pipeline/model"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// usualPartials is how many partial sums of gradients a device that computes the whole model may have
// where a run leaves SumGroups to the founder: 12 bytes for each parameter, besides 16 for training. A model that needs
// several devices may have scarcePartials: each further one takes a quarter more of them.
const (
	usualPartials  = 3
	scarcePartials = 1
)

// SumGroups returns into how many groups a new run's sums cut its micro-batches (plan.Sums), and why. More groups
// allow more replicas and cost a device memory for sums that wait. It takes as many as go with usualPartials: one
// for each of up to 15 micro-batches, else 8. There are fewer where the founder's device of so many bytes has room
// for the whole model but not for the sums that wait, two where it has no room for the model, and one for each replica
// that is asked for in any case. Each replica has so many copies of the model.
func SumGroups(t plan.TrainSpec, copies int, whole cost.Training, roomBytes int64) (groups int, why string) {
	sums := func(groups int) string {
		if t.Sync.Local {
			return fmt.Sprintf("a step's micro-batches are in %s, of which each replica takes whole ones: up to %s", plan.Count(groups, "group"), plan.Count(groups/copies, "replica"))
		}
		return fmt.Sprintf("gradients are added in %s of micro-batches: up to %s, with the same losses however many",
			plan.Count(groups, "group"), plan.Count(groups/copies, "replica"))
	}
	if t.SumGroups > 0 {
		return t.SumGroups, sums(t.SumGroups)
	}
	asked := max(1, t.Replicas) * copies
	alone := wholeBytes(whole, 0)
	most := usualPartials
	if alone > roomBytes {
		most = scarcePartials
	}
	for ; most > 0 && alone <= roomBytes && wholeBytes(whole, most) > roomBytes; most-- {
	}
	groups = t.Micros
	if limit := 1 << most; t.Micros >= 2*limit {
		groups = limit
	}
	groups = min(max(groups, asked), t.Micros)
	why = sums(groups)
	switch {
	case alone > roomBytes && groups < t.Micros:
		why += "; the model does not fit here alone, and more take more memory"
	case most < usualPartials && groups < t.Micros:
		why += fmt.Sprintf("; sums of more would not fit here beside the model (%s of %s)", plan.Size(wholeBytes(whole, most+1)), plan.Size(roomBytes))
	}
	if groups < t.Micros {
		why += "; --sum-groups sets another number"
	}
	return groups, why
}

// wholeBytes returns what the whole model takes of a device in training, with one micro-batch in flight and so many
// partial sums of gradients.
func wholeBytes(of cost.Training, partials int) int64 {
	memory := cost.NewMemory(of).InParts(cost.Parts{Partials: partials})
	device, err := memory.Open(model.StorageF32)
	if err != nil {
		return 0
	}
	return device.FixedFor(1, false)[memory.Layers()] + device.Pass() + device.SavedFor()[memory.Layers()] + memory.Slot()
}
