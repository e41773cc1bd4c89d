package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pnode/planner/plan"

	"pnode/pipeline/model"
)

// TestApply replays testdata/apply_*.txt: entries in, the state or the refusal out. Every
// accepted entry is applied a second time, which must change nothing, and every state goes
// through its encoding.
func TestApply(t *testing.T) {
	scenario(t, "apply_*.txt", func(t *testing.T) func(string) string {
		var s State
		return func(line string) string {
			e := parseEntry(t, line)
			b, err := EncodeEntry(e)
			if err != nil {
				t.Fatal(err)
			}
			if e, err = DecodeEntry(b); err != nil {
				t.Fatal(err)
			}
			before, _ := EncodeState(s)
			next, err := Apply(s, e)
			after, _ := EncodeState(s)
			if !bytes.Equal(before, after) {
				t.Errorf("%s: the earlier state was changed", line)
			}
			if err != nil {
				return refusal(t, err)
			}
			again, err := Apply(next, e)
			if err != nil || !reflect.DeepEqual(again, next) {
				t.Errorf("%s: a second time gives %v, %v", line, again, err)
			}
			encoded, err := EncodeState(next)
			if err != nil {
				t.Fatal(err)
			}
			if s, err = DecodeState(bytes.NewReader(encoded)); err != nil {
				t.Fatal(err)
			}
			return describe(s)
		}
	})
}

func refusal(t *testing.T, err error) string {
	if !errors.Is(err, ErrRejected) {
		t.Errorf("%v does not wrap ErrRejected", err)
	}
	word := "rejected"
	if errors.Is(err, ErrStale) {
		word = "stale"
	}
	return word + ": " + strings.TrimPrefix(err.Error(), ErrRejected.Error()+": ")
}

func number(t *testing.T, v string) uint64 {
	if v == "" {
		return 0
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// parseEntry reads the commands of the scenarios.
func parseEntry(t *testing.T, line string) Entry {
	words, p := fields(line)
	switch words[0] {
	case "run":
		return SetRun{Owner: "a", Spec: plan.RunSpec{
			Run: plan.RunID(words[1]), Model: model.Config{Blocks: int(number(t, p["blocks"]))},
			Train: plan.TrainSpec{
				Micros: int(number(t, p["micros"])), Steps: plan.Step(number(t, p["steps"])), KeepCheckpoints: int(number(t, p["keep"])),
			},
		}}
	case "join":
		return Join{Peer: plan.PeerID(words[1]), ProcessEpoch: number(t, p["boot"]), Addrs: list(p["addrs"]), Label: p["label"]}
	case "update":
		return Update{Peer: plan.PeerID(words[1]), ProcessEpoch: number(t, p["boot"]), Addrs: list(p["addrs"])}
	case "state":
		return SetMemberState{Peer: plan.PeerID(words[1]), ProcessEpoch: number(t, p["boot"]), State: MemberState(words[2]), Reason: p["reason"]}
	case "plan":
		return parsePlan(t, p)
	case "saved":
		return parseSaved(t, p)
	case "want-pause":
		return WantPause{Count: number(t, words[1])}
	case "want-stop":
		return WantStop{}
	case "resume":
		return Resume{Incarnation: number(t, words[1])}
	case "finish":
		return Finish{}
	case "lead":
		return Lead{Peer: plan.PeerID(words[1]), Term: plan.Term(number(t, p["term"]))}
	case "bind":
		return BindGrant{Serial: number(t, words[1]), Peer: plan.PeerID(words[2])}
	case "rollback":
		return Rollback{From: plan.Step(number(t, p["from"])), To: plan.Step(number(t, p["to"])), Term: plan.Term(number(t, p["term"]))}
	}
	t.Fatalf("unknown command %q", line)
	return nil
}

// parsePlan reads stages=a:0-2,b:2-4 as one replica with all micro-batches.
func parsePlan(t *testing.T, p map[string]string) Entry {
	pl := plan.Plan{
		Run: plan.RunID(p["run"]), Generation: plan.Generation(number(t, p["generation"])),
		Start: plan.Step(number(t, p["start"])), Schedule: "1f1b",
	}
	pipe := plan.Pipeline{Micros: int(number(t, p["micros"]))}
	for _, stage := range list(p["stages"]) {
		peer, layers, _ := strings.Cut(stage, ":")
		first, end, _ := strings.Cut(layers, "-")
		pipe.Stages = append(pipe.Stages, plan.Placement{
			Peer: plan.PeerID(peer), Device: "cpu", Holder: plan.PeerID(p["holder"]),
			Layers: plan.LayerRange{First: int(number(t, first)), End: int(number(t, end))},
		})
		pipe.Warmups = append(pipe.Warmups, 1)
	}
	pl.Replicas = []plan.Pipeline{pipe}
	return SetPlan{Plan: pl, Term: plan.Term(number(t, p["term"])), Epoch: number(t, p["epoch"]), Reasons: list(p["reasons"])}
}

// parseSaved reads layers=0,1 with one chunk each, made of the word chunk.
func parseSaved(t *testing.T, p map[string]string) Entry {
	e := StageSaved{Step: plan.Step(number(t, p["step"])), Generation: plan.Generation(number(t, p["generation"]))}
	size := int64(1000)
	if p["size"] != "" {
		size = int64(number(t, p["size"]))
	}
	for _, l := range list(p["layers"]) {
		ref := LayerRef{Layer: int(number(t, l)), SizeBytes: size, Chunks: make([]plan.Hash, 1)}
		copy(ref.Chunks[0][:], p["chunk"]+l)
		for _, h := range list(p["holders"]) {
			ref.Holders = append(ref.Holders, plan.PeerID(h))
		}
		e.Layers = append(e.Layers, ref)
	}
	return e
}

// describe prints a state on one line.
func describe(s State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch %d:", s.Epoch)
	for _, m := range s.Members {
		fmt.Fprintf(&b, " %s=%s/%d", m.Peer, m.State, m.ProcessEpoch)
		if len(m.Addrs) > 0 {
			fmt.Fprintf(&b, "@%s", strings.Join(m.Addrs, ","))
		}
	}
	for _, g := range s.Grants {
		fmt.Fprintf(&b, "; grant %d %v", g.Serial, g.Peers)
	}
	if s.Run != nil {
		fmt.Fprintf(&b, "; run %s incarnation %d", s.Run.Run, s.Incarnation)
	}
	if s.Plan.Generation > 0 {
		fmt.Fprintf(&b, "; generation %d of term %d from step %d", s.Plan.Generation, s.Term, s.Plan.Start)
	}
	if s.Checkpoint.Step > 0 {
		fmt.Fprintf(&b, "; checkpoint %s", pieces(s.Checkpoint))
	}
	for _, o := range s.Older {
		fmt.Fprintf(&b, "; older %d", o.Step)
	}
	for _, p := range s.Pending {
		fmt.Fprintf(&b, "; pending %s", pieces(p))
	}
	if s.PauseWanted > 0 {
		fmt.Fprintf(&b, "; pause %d", s.PauseWanted)
	}
	if s.StopWanted {
		b.WriteString("; stop")
	}
	if s.Finished {
		b.WriteString("; finished")
	}
	return b.String()
}

func pieces(c Checkpoint) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", c.Step)
	for _, l := range c.Layers {
		fmt.Fprintf(&b, " %d%v", l.Layer, l.Holders)
	}
	return b.String()
}

func TestRosterIsBounded(t *testing.T) {
	var s State
	var err error
	for i := range MaxMembers {
		if s, err = Apply(s, Join{Peer: plan.PeerID(fmt.Sprintf("p%03d", i)), ProcessEpoch: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Apply(s, Join{Peer: "more", ProcessEpoch: 1}); !errors.Is(err, ErrRejected) {
		t.Fatalf("one member too many gives %v", err)
	}
	for i := range 3 * MaxMembers {
		peer := plan.PeerID(fmt.Sprintf("p%03d", i))
		if s, err = Apply(s, SetMemberState{Peer: peer, ProcessEpoch: 1, State: Gone}); err != nil {
			t.Fatal(err)
		}
		if s, err = Apply(s, Join{Peer: plan.PeerID(fmt.Sprintf("p%03d", i+MaxMembers)), ProcessEpoch: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.Members) != 2*MaxMembers || s.present() != MaxMembers {
		t.Errorf("%d members, %d of them present", len(s.Members), s.present())
	}
	if _, ok := s.Member("p000"); ok {
		t.Error("the member gone longest is remembered")
	}
	if m, ok := s.Member("p191"); !ok || m.State != Gone {
		t.Error("the member gone last is forgotten")
	}
}

func TestPendingStepsAreBounded(t *testing.T) {
	s := planned(t)
	saved := func(step plan.Step, layer int) StageSaved {
		return StageSaved{Step: step, Generation: 1, Layers: []LayerRef{
			{Layer: layer, SizeBytes: 1, Chunks: make([]plan.Hash, 1), Holders: []plan.PeerID{"a"}},
		}}
	}
	var err error
	for step := plan.Step(2); step <= MaxPending+3; step++ {
		if s, err = Apply(s, saved(step, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.Pending) != MaxPending || s.Pending[0].Step != 4 {
		t.Fatalf("%d pending from step %d", len(s.Pending), s.Pending[0].Step)
	}
	if _, err := Apply(s, saved(1, 0)); !errors.Is(err, ErrStale) {
		t.Errorf("a step before all pending ones gives %v", err)
	}
	large := saved(MaxPending+3, 1)
	large.Layers[0].Chunks = make([]plan.Hash, MaxCheckpointChunks)
	if _, err := Apply(s, large); !errors.Is(err, ErrRejected) {
		t.Errorf("too many chunks in one checkpoint give %v", err)
	}
}

// planned is a state with one active member and a plan of one stage.
func planned(t testing.TB) State {
	var s State
	var err error
	for _, e := range []Entry{
		testRun(),
		Join{Peer: "a", ProcessEpoch: 1},
		SetMemberState{Peer: "a", ProcessEpoch: 1, State: Active},
		SetPlan{Epoch: 2, Term: 1, Plan: plan.Plan{Run: "run", Generation: 1, Schedule: "1f1b", Replicas: []plan.Pipeline{{
			Micros: 2, Warmups: []int{0},
			Stages: []plan.Placement{{Peer: "a", Device: "cpu", Layers: plan.LayerRange{End: 3}}},
		}}}},
	} {
		if s, err = Apply(s, e); err != nil {
			t.Fatal(err)
		}
	}
	return s
}
