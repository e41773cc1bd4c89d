package plan

// Part says what a replica has brought to an outer step, by the word of a replica that has all of its messages. The zero value: some are
// missing.
type Part struct {
	// Steps counts the inner steps.
	Steps Step `json:"steps"`
	// Sum is a hash over the messages of all layers, in order, and over the losses of the steps: it does not depend on how replicas are cut.
	Sum Hash `json:"sum"`
}

// Gathered says that a replica has the messages of all that it waits for in a round. Its coordinator proposes it.
type Gathered struct {
	Generation Generation `json:"generation"`
	// From is the step after which the round began.
	From    Step    `json:"from"`
	Replica Replica `json:"replica"`
	// Parts has what came, by replica.
	Parts []Part `json:"parts"`
	// Seals has by replica the hash of the seal under its losses, where it made fewer steps than the round has; nil where all have made as many.
	Seals []Hash `json:"seals,omitempty"`
	// Due asks for a checkpoint.
	Due bool `json:"due,omitempty"`
}

// Seal returns what Seals has of a replica.
func (g Gathered) Seal(of Replica) (sum Hash) {
	if int(of) < len(g.Seals) {
		sum = g.Seals[of]
	}
	return sum
}

// Contradiction says that replica By has other messages or losses of replica Of than that says that it has sent. Nobody can tell by it alone which of the two is
// wrong, nor which of their nodes.
type Contradiction struct {
	By Replica `json:"by"`
	Of Replica `json:"of"`
	// Has is what By has told the log of Of, Sent what Of has told of itself: their coordinators can show what these follow from. Without Sent it is that Of
	// had ended its part of the round before it might.
	Has  Part `json:"has,omitzero"`
	Sent Part `json:"sent,omitzero"`
	// Seal is the hash of the seal under its losses then. Others can compute what a replica will send, but not that.
	Seal Hash `json:"seal,omitzero"`
}

// Hasty reports whether it says that Of had ended its part of the round before it might.
func (c Contradiction) Hasty() bool { return c.Sent == Part{} }

// MaxContradictions bounds those of a round that are kept: as many as two replicas of the most have with all others.
const MaxContradictions = 4 * MaxLocalReplicas

// Merged is the commit of an outer step, as the log has it: the same for all replicas.
type Merged struct {
	Generation Generation `json:"generation"`
	// From and To are the inner steps between which the round was: To is From and the most that a counted replica has done.
	From Step `json:"from"`
	To   Step `json:"to"`
	// Parts has by replica what enters the mean of the outer gradients, weighed by its micro-batches; the zero value: nothing.
	Parts []Part `json:"parts"`
	// Disputed are replicas that have other messages of some of the rest than these say that they sent, or the other way round.
	Disputed []Replica `json:"disputed,omitempty"`
	// Contradictions are what brought them there, after those of replicas that had ended the round before they might: MaxContradictions of them at most.
	Contradictions []Contradiction `json:"contradictions,omitempty"`
	// Save makes a checkpoint of the state after the outer step. Last ends the plan there.
	Save bool `json:"save,omitempty"`
	Last bool `json:"last,omitempty"`
	// Stream has the micro-batches that nobody was counted for, in brief.
	Stream Stream `json:"stream,omitzero"`
}

// Counted returns the replicas whose outer gradients enter the mean, in order.
func (m Merged) Counted() (counted []Replica) {
	for r, part := range m.Parts {
		if part.Steps > 0 {
			counted = append(counted, Replica(r))
		}
	}
	return counted
}
