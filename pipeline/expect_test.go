package pipeline

import (
	"context"
	"errors"
	"testing"

	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// expecting is an exchange whose receivers expect every message that is sent.
type expecting struct {
	collective.MemoryEnd
	t    *testing.T
	run  plan.RunSpec
	plan plan.Plan
}

func (e expecting) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	if err := Expected(e.run, e.plan)(e.Self, to, f.Tag, len(f.Payload)); err != nil {
		e.t.Errorf("%s does not expect what %s sends: %v", to, e.Self, err)
	}
	return e.MemoryEnd.Send(ctx, to, f)
}

// TestWhatNobodyExpects: a message of another's stage, replica or layer, from who does not have it, to who does not
// need it, or larger than it can be.
func TestWhatNobodyExpects(t *testing.T) {
	run := testRun()
	p := cut(run, "1f1b", []int{0, 2, 3}, []int{0, 2, 3})
	boundary := wire.TensorBytes(wire.F32, run.Train.MicroBatch*run.Model.Context*run.Model.Channels, run.Model.Channels)
	part := func(kind wire.Kind, r plan.Replica, s plan.Stage, layer, receiver int) wire.Tag {
		return wire.Tag{Kind: kind, Replica: r, Stage: s, Index: int32(receiver<<11 + layer)}
	}
	if layer, receiver, piece := collective.LayerOf(part(wire.ReducePart, 1, 0, 1, 0)); layer != 1 || receiver != 0 || piece != 0 {
		t.Fatalf("a tag of layer 1 for replica 0 names layer %d, replica %d, piece %d", layer, receiver, piece)
	}
	for name, c := range map[string]struct {
		from, to plan.PeerID
		tag      wire.Tag
		bytes    int
		want     error
	}{
		"activations":            {"peer-0-0", "peer-0-1", wire.Tag{Kind: wire.Activation, Stage: 1, Index: 3}, boundary, nil},
		"no tensor":              {"peer-0-0", "peer-0-1", wire.Tag{Kind: wire.Activation, Stage: 1, Index: 3}, 0, nil},
		"too large":              {"peer-0-0", "peer-0-1", wire.Tag{Kind: wire.Activation, Stage: 1, Index: 3}, boundary + 1, wire.ErrLength},
		"255 MB":                 {"peer-0-0", "peer-0-1", wire.Tag{Kind: wire.Activation, Stage: 1}, 255_000_000, wire.ErrLength},
		"from another":           {"peer-0-2", "peer-0-1", wire.Tag{Kind: wire.Activation, Stage: 1}, boundary, wire.ErrValue},
		"of another replica":     {"peer-0-0", "peer-0-1", wire.Tag{Kind: wire.Activation, Replica: 1, Stage: 1}, boundary, wire.ErrValue},
		"for another's stage":    {"peer-0-0", "peer-0-1", wire.Tag{Kind: wire.Activation, Stage: 2}, boundary, wire.ErrValue},
		"no such stage":          {"peer-0-0", "peer-0-1", wire.Tag{Kind: wire.Activation, Stage: 1 << 30}, boundary, wire.ErrValue},
		"no such replica":        {"peer-0-0", "peer-0-1", wire.Tag{Kind: wire.Activation, Replica: 1 << 30, Stage: 1}, boundary, wire.ErrValue},
		"no such micro-batch":    {"peer-0-0", "peer-0-1", wire.Tag{Kind: wire.Activation, Stage: 1, Index: 1 << 30}, boundary, wire.ErrValue},
		"gradients":              {"peer-0-1", "peer-0-0", wire.Tag{Kind: wire.Gradient}, boundary, nil},
		"gradients forward":      {"peer-0-0", "peer-0-1", wire.Tag{Kind: wire.Gradient, Stage: 1}, boundary, wire.ErrValue},
		"a part":                 {"peer-1-0", "peer-0-0", part(wire.ReducePart, 1, 0, 1, 0), 4, nil},
		"a part of another":      {"peer-1-0", "peer-0-0", part(wire.ReducePart, 1, 0, 3, 0), 4, wire.ErrValue},
		"a part in another name": {"peer-1-0", "peer-0-0", part(wire.ReducePart, 1, 1, 2, 0), 4, wire.ErrValue},
		"a part for another":     {"peer-1-0", "peer-0-0", part(wire.GatherPart, 1, 0, 1, 1), 4, wire.ErrValue},
		"a part for nobody":      {"peer-1-0", "peer-0-0", part(wire.GatherPart, 1, 0, 1, 7), 4, wire.ErrValue},
		"a part too large":       {"peer-1-0", "peer-0-0", part(wire.GatherPart, 1, 0, 1, 0), 4*run.Model.LayerLen(1) + 4, wire.ErrLength},
		"a tied embedding":       {"peer-0-2", "peer-0-0", wire.Tag{Kind: wire.TiedGrad}, 4 * run.Model.TiedGradLen(), nil},
		"a tied middle":          {"peer-0-1", "peer-0-0", wire.Tag{Kind: wire.TiedGrad}, 4, wire.ErrValue},
		"state":                  {"peer-1-0", "peer-0-0", part(wire.StatePart, 1, 0, 1, 1), 4, nil},
		"state of a third kind":  {"peer-1-0", "peer-0-0", part(wire.StatePart, 1, 0, 1, 2), 4, wire.ErrValue},
		"a receipt":              {"peer-0-0", "peer-1-0", part(wire.StateTaken, 1, 0, 1, 0), 0, nil},
		"a receipt from another": {"peer-0-1", "peer-1-0", part(wire.StateTaken, 1, 0, 1, 0), 0, wire.ErrValue},
		"a report":               {"peer-1-1", "peer-0-2", wire.Tag{Kind: wire.KindReport, Replica: 1, Stage: 1}, 40, nil},
		"a report too large":     {"peer-1-1", "peer-0-2", wire.Tag{Kind: wire.KindReport, Replica: 1, Stage: 1}, 100_000, wire.ErrLength},
		"a report to another":    {"peer-1-1", "peer-0-1", wire.Tag{Kind: wire.KindReport, Replica: 1, Stage: 1}, 40, wire.ErrValue},
		"another's report":       {"peer-1-1", "peer-0-2", wire.Tag{Kind: wire.KindReport, Replica: 1, Stage: 0}, 40, wire.ErrValue},
		"a commit":               {"peer-0-2", "peer-1-1", wire.Tag{Kind: wire.KindCommit, Replica: 1, Stage: 1}, 41, nil},
		"a commit of another":    {"peer-0-1", "peer-1-1", wire.Tag{Kind: wire.KindCommit, Replica: 1, Stage: 1}, 41, wire.ErrValue},
		"a stranger's":           {"peer-9-9", "peer-0-1", wire.Tag{Kind: wire.Activation, Stage: 1}, 4, wire.ErrValue},
	} {
		if err := Expected(run, p)(c.from, c.to, c.tag, c.bytes); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// FuzzExpected has any tag at all asked about.
func FuzzExpected(f *testing.F) {
	run := testRun()
	p := cut(run, "1f1b", []int{0, 2}, []int{0, 1})
	expected := Expected(run, p)
	local := localPlan(localRun("tied"), "int8", []int{2, 4}, []int{0, 2}, []int{0, 1})
	expectedLocal := Expected(localRun("tied"), local)
	f.Add(uint8(wire.OuterGrad), int32(1), int32(0), int32(1<<11), 7)
	f.Add(uint8(wire.KindOuterReport), int32(1), int32(1), int32(0), 7)
	f.Add(uint8(wire.OuterHave), int32(1), int32(0), int32(1), 7)
	f.Add(uint8(wire.ReducePart), int32(1), int32(0), int32(1<<30), 7)
	f.Add(uint8(wire.Activation), int32(0), int32(1), int32(3), 1)
	f.Fuzz(func(t *testing.T, kind uint8, replica, stage, index int32, bytes int) {
		tag := wire.Tag{Kind: wire.Kind(kind), Replica: plan.Replica(replica), Stage: plan.Stage(stage), Index: index}
		if tag.Validate() != nil {
			return
		}
		for _, peer := range p.Peers() {
			if err := expected(peer, "peer-0-1", tag, bytes); err == nil && bytes > 1<<20 {
				t.Errorf("%v of %d bytes from %s is expected", tag, bytes, peer)
			}
		}
		for _, peer := range local.Peers() {
			if err := expectedLocal(peer, "peer-1", tag, bytes); err == nil && bytes > 1<<20 {
				t.Errorf("%v of %d bytes from %s is expected of replicas with local steps", tag, bytes, peer)
			}
		}
	})
}

// TestTilesOfFewChannelsAreExpected: with 4 channels a tensor in int4 is larger than in float32.
func TestTilesOfFewChannelsAreExpected(t *testing.T) {
	run := testRun()
	run.Model.Channels = 4
	tensor := wire.TensorBytes(wire.Int4, run.Train.MicroBatch*run.Model.Context*run.Model.Channels, run.Model.Channels)
	tag := wire.Tag{Kind: wire.Activation, Stage: 1}
	if err := Expected(run, cut(run, "1f1b", []int{0, 2}))("peer-0-0", "peer-0-1", tag, tensor); err != nil {
		t.Error(err)
	}
}
