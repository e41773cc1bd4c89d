package outersteps

import (
	"pnode/node/ledger"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Book writes the outer steps of the log into a node's ledger. The zero value of all but Ledger is ready. It belongs to one goroutine.
type Book struct {
	Ledger *ledger.Recorder
	// Of the newest state: the step that its samples are left after, and these.
	at     ledger.Position
	stream plan.Stream
	end    plan.Step // of the round that begins there; 0: none does
}

// Follow takes in a state of the log. Where some between it and the one before were not seen, an outer step may be missing, or what was left before one.
func (b *Book) Follow(s consensus.State) {
	if s.Run == nil || s.Plan.Local == nil {
		return
	}
	if m := s.Merged; m != nil {
		o := ledger.Outer{Merged: *m, End: s.Plan.Local.RoundEnd(m.From, s.Run.Train.Steps)}
		switch before := s.Plan.Stream.Full(s.Plan.Start, s.Run.Train.Micros); {
		case b.at == ledger.Position{Generation: m.Generation, Step: m.From} && b.end != 0:
			before, o.End = b.stream, b.end
			o.Before = &before
		case m.From == s.Plan.Start:
			o.Before = &before
		}
		b.Ledger.Outer(o)
	}
	if r := s.Round; r != nil {
		b.at, b.stream, b.end = ledger.Position{Generation: s.Plan.Generation, Step: r.From}, r.Stream, r.End
	}
}
