package collective

import (
	"context"
	"errors"
	"math"
	"testing"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// unchecked hands a vector out without looking at it, as a member with other software may.
func unchecked(t *testing.T, net *Memory, from plan.PeerID, to plan.PeerID, tag wire.Tag, v []float32) {
	t.Helper()
	frame := wire.Frame{Tag: tag, Payload: wire.AppendF32(nil, v)}
	if err := net.End(from).Send(t.Context(), to, frame); err != nil {
		t.Fatal(err)
	}
}

// TestElementsOutOfBoundsAreTheSendersFault: of the other replica where they come from it, of this one
// where they are its own, and of nobody where loss scaling may make them.
func TestElementsOutOfBoundsAreTheSendersFault(t *testing.T) {
	ms := members(2)
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1)), 0x1p46} {
		for _, kind := range []wire.Kind{wire.ReducePart, wire.GatherPart} {
			net := NewMemory()
			g := Group{Members: ms, Sums: oneEach(2), Layer: 4, Generation: 1, Step: 9}
			unchecked(t, net, ms[1].Peer, ms[0].Peer, g.tag(kind, 1, 0), []float32{1, bad})
			reduce := func(ctx context.Context, ex Exchange, g Group, v []float32) error {
				return ReduceScatter(ctx, ex, g, [][]float32{v})
			}
			if kind == wire.GatherPart {
				reduce = AllGather
			}
			err := reduce(t.Context(), net.End(ms[0].Peer), g, make([]float32, 4))
			wantFault(t, err, plan.Fault{Accused: ms[1].Peer, Kind: plan.BadTensor, Step: 9})

			err = reduce(t.Context(), NewMemory().End(ms[0].Peer), g, []float32{bad, bad, bad, bad})
			wantFault(t, err, plan.Fault{Accused: ms[0].Peer, Kind: plan.BadTensor, Step: 9})
		}
		net := NewMemory()
		tied := Tied{Generation: 1, Step: 9, Embed: Member{Peer: "embed"}, Head: Member{Peer: "head", Stage: 2}, Groups: 1}
		unchecked(t, net, "head", "embed", tied.tag(tied.Embed), []float32{bad})
		err := SumTied(t.Context(), net.End("embed"), tied, make([]float32, 1))
		wantFault(t, err, plan.Fault{Accused: "head", Kind: plan.BadTensor, Step: 9})
	}
	net := NewMemory()
	var work errgroup.Group
	for r := range ms {
		work.Go(func() error {
			g := Group{Members: ms, Sums: oneEach(2), Self: plan.Replica(r), Overflow: func(plan.PeerID, wire.Tag) {}}
			return AllReduce(t.Context(), net.End(ms[r].Peer), g, [][]float32{{1, float32(math.Inf(1))}})
		})
	}
	if err := work.Wait(); err != nil {
		t.Errorf("loss scaling: %v", err)
	}
}

func wantFault(t *testing.T, err error, want plan.Fault) {
	t.Helper()
	var got *plan.Fault
	if !errors.As(err, &got) || got.Accused != want.Accused || got.Kind != want.Kind || got.Step != want.Step {
		t.Errorf("got %v, want the fault %q of %s in step %d", err, want.Kind, want.Accused, want.Step)
	}
}
