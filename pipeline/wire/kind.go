package wire

import "fmt"

// Kind says what a frame carries. The zero value is refused by every decoder.
type Kind uint8

// The kinds. A tensor kind has float32 elements in a Codec: those of Activation and
// Gradient in the one that they name, those of the rest in F32.
const (
	_ Kind = iota
	// Activation is a boundary tensor [B,T,C] on its way forward. Without a payload it says that
	// there is none, as an evaluation in float32 may.
	Activation
	// Gradient is the gradient of a boundary tensor [B,T,C] on its way back.
	Gradient
	// ReducePart is one replica's share of a range of a layer's gradient, for its owner.
	ReducePart
	// GatherPart is the sum of such a range, or the parameters that were updated with it, from
	// its owner.
	GatherPart
	// TiedGrad is the gradient of the tied embedding, between first and last stage.
	TiedGrad
	// KindReport carries a Report.
	KindReport
	// KindCommit carries a Commit.
	KindCommit
	// Heartbeat carries nothing.
	Heartbeat
	// Padding carries nothing of use: it fills a connection that has to find its pace.
	Padding
	// StatePart is one replica's part of a layer's optimizer state, for the replica that saves.
	StatePart
	// StateTaken carries nothing: such a part has come.
	StateTaken
	// OuterGrad is a piece of what a replica with local steps has learned of a layer in a round, as package compress writes it, for
	// another replica; or of the mean of all, from one end of a tied embedding to the other.
	OuterGrad
	// KindOuterReport carries the losses of a replica's steps of a round, for another replica, and the seal under them.
	KindOuterReport
	// OuterHave carries the sealed hashes of a replica's messages of a round that a stage of a replica has, for that one's coordinator.
	OuterHave
	kindEnd
)

// Kinds is one more than the last kind.
const Kinds = int(kindEnd)

var kindNames = [kindEnd]string{
	"", "activation", "gradient", "reduce-part", "gather-part", "tied-grad", "report", "commit", "heartbeat", "padding",
	"state-part", "state-taken", "outer-grad", "outer-report", "outer-have",
}

// Valid reports whether k is one of the kinds.
func (k Kind) Valid() bool { return k > 0 && k < kindEnd }

func (k Kind) String() string {
	if !k.Valid() {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Class returns the class of streams that a valid kind travels on.
func (k Kind) Class() Class {
	switch k {
	case Activation:
		return Activations
	case Gradient:
		return Gradients
	case ReducePart, GatherPart, TiedGrad, StatePart, OuterGrad:
		return Reductions
	default:
		return Control
	}
}

// maxPayload returns the largest payload of a kind in bytes, given the bound for tensors.
func (k Kind) maxPayload(maxTensorBytes int) int {
	switch k {
	case KindReport:
		return MaxReportBytes
	case KindCommit:
		return MaxCommitBytes
	case KindOuterReport:
		return MaxOuterReportBytes + SealBytes
	case OuterHave:
		return MaxOuterHaveBytes
	case Heartbeat, StateTaken:
		return 0
	case Padding:
		return MaxPieceBytes
	default:
		return maxTensorBytes
	}
}

// Class groups the kinds that may block one another: each class has a stream of its own.
// The zero value is refused by every decoder.
type Class uint8

// The classes, the most urgent first.
const (
	_ Class = iota
	// Control carries heartbeats, reports, commits and receipts.
	Control
	// Activations carries boundary tensors forward.
	Activations
	// Gradients carries boundary gradients back.
	Gradients
	// Reductions carries what replicas, and the two ends of the tied embedding, add up, and
	// the parts of state that replicas hold for each other.
	Reductions
	// Chunks carries stored chunks; it belongs to no generation.
	Chunks
	classEnd
)

var classNames = [classEnd]string{"", "control", "activations", "gradients", "reductions", "chunks"}

// SessionClasses are the classes whose streams belong to a generation.
var SessionClasses = [...]Class{Control, Activations, Gradients, Reductions}

// Valid reports whether c is one of the classes.
func (c Class) Valid() bool { return c > 0 && c < classEnd }

func (c Class) String() string {
	if !c.Valid() {
		return fmt.Sprintf("class(%d)", uint8(c))
	}
	return classNames[c]
}
