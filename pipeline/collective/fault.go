package collective

import (
	"fmt"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// Describe returns what a message of this package carries, in plain words.
func Describe(t wire.Tag) string {
	layer, piece := int(t.Index)%maxLayers, int(t.Index)/(maxReplicas*maxLayers)
	text := ""
	switch t.Kind {
	case wire.ReducePart:
		text = fmt.Sprintf("replica %d's part of layer %d's gradient", t.Replica, layer)
	case wire.GatherPart:
		text = fmt.Sprintf("layer %d's values that replica %d owns", layer, t.Replica)
	case wire.TiedGrad:
		text = fmt.Sprintf("the other end's gradient of replica %d's tied embedding", t.Replica)
	case wire.StatePart:
		text = fmt.Sprintf("replica %d's part of layer %d's optimizer state", t.Replica, layer)
	case wire.StateTaken:
		text = fmt.Sprintf("the receipt for replica %d's part of layer %d's optimizer state", t.Replica, layer)
	default:
		return t.String()
	}
	if piece > 0 {
		text += fmt.Sprintf(" (piece %d)", piece)
	}
	return text
}

// LayerOf returns the layer and the piece of it that a part's tag names, and the receiving replica or
// vector between them.
func LayerOf(t wire.Tag) (layer, receiver, piece int) {
	rest := int(t.Index) / maxLayers
	return int(t.Index) % maxLayers, rest % maxReplicas, rest / maxReplicas
}

// faulty returns the fault of a peer in a message.
func faulty(kind plan.FaultKind, accused plan.PeerID, t wire.Tag, err error) error {
	if kind == plan.BadTensor && t.Kind == wire.StatePart {
		kind = plan.BadParameters
	}
	return &plan.Fault{Accused: accused, Kind: kind, Step: t.Step, Detail: fmt.Sprintf("%s: %v", Describe(t), err)}
}

// MostBytes returns how large a message of a vector of n elements, or of a part of one, may be.
func MostBytes(n int) int { return 4 * min(n, pieces(0).size(n)) }
