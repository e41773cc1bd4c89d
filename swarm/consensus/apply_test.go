package consensus

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/bearer"
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
			if run, ok := e.(SetRun); ok && strings.Contains(line, "sync=") {
				s = withLocalSteps(t, run.Spec, line)
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
				Micros: int(number(t, p["micros"])), SumGroups: int(number(t, p["groups"])), Steps: plan.Step(number(t, p["steps"])), KeepCheckpoints: int(number(t, p["keep"])),
			},
		}}
	case "join":
		return Join{Peer: plan.PeerID(words[1]), ProcessEpoch: number(t, p["boot"]), Addrs: list(p["addrs"]), Label: p["label"]}
	case "update":
		return Update{Peer: plan.PeerID(words[1]), ProcessEpoch: number(t, p["boot"]), Addrs: list(p["addrs"])}
	case "state":
		return SetMemberState{Peer: plan.PeerID(words[1]), ProcessEpoch: number(t, p["boot"]), State: MemberState(words[2]), Reason: p["reason"], GraceS: uint32(number(t, p["grace"]))}
	case "plan":
		return parsePlan(t, p)
	case "saved":
		return parseSaved(t, p)
	case "whole":
		return KeptWhole{Peer: plan.PeerID(words[1]), Step: plan.Step(number(t, p["step"])), Generation: plan.Generation(number(t, p["generation"])), Own: parseOwn(t, p)}
	case "copy-failed":
		return CopyFailed{Peer: plan.PeerID(words[1]), Holder: plan.PeerID(p["to"])}
	case "salvage":
		return parseSalvage(t, p)
	case "substitute":
		return Substitute{
			Generation: plan.Generation(number(t, p["generation"])), Lost: plan.PeerID(words[1]), ProcessEpoch: number(t, p["boot"]),
			By: plan.PeerID(p["by"]), Replays: p["from"] != "", From: plan.Step(number(t, p["from"])), Reason: p["reason"],
		}
	case "want-pause":
		return WantPause{Count: number(t, words[1])}
	case "want-stop":
		return WantStop{}
	case "resume":
		return Resume{Incarnation: number(t, words[1])}
	case "finish":
		return Finish{}
	case "extend":
		return Extend{Steps: plan.Step(number(t, words[1]))}
	case "lead":
		return Lead{Peer: plan.PeerID(words[1]), Term: plan.Term(number(t, p["term"]))}
	case "invite":
		return testInvite(number(t, words[1]), plan.PeerID(words[2]), int(number(t, p["uses"])), p["for"] == "owners")
	case "redeem":
		return testRedeem(number(t, words[1]), plan.PeerID(words[2]), plan.PeerID(cmp.Or(p["signed"], words[2])))
	case "revoke":
		serial, _ := strconv.ParseUint(p["invite"], 10, 64)
		return Revoke{By: plan.PeerID(p["by"]), Peer: plan.PeerID(p["peer"]), Serial: serial, Members: p["members"] == "too", Reason: p["reason"]}
	case "shown":
		e := Shown{Generation: plan.Generation(number(t, p["generation"]))}
		for _, word := range []string{"held", "lowered"} {
			for _, said := range list(p[word]) {
				peer, flops, _ := strings.Cut(said, ":")
				e.Members = append(e.Members, ShownMember{Peer: plan.PeerID(peer), FLOPS: int64(number(t, flops)), Held: word == "held"})
			}
		}
		return e
	case "blame":
		return Blame{
			Peer: plan.PeerID(p["peer"]), Accuser: plan.PeerID(p["accuser"]), Kind: plan.FaultKind(p["kind"]), Detail: p["detail"],
			Generation: plan.Generation(number(t, p["generation"])), Step: plan.Step(number(t, p["step"])),
			Until: int64(number(t, p["until"])), Diverged: p["diverged"] != "",
			Back: plan.Step(number(t, p["back"])), Again: p["again"] != "",
		}
	case "vouch":
		return Vouch{made(number(t, words[1]), 1, p["from"], p["voters"], p["signed"])}
	case "gathered":
		return Gathered{
			Generation: plan.Generation(number(t, p["generation"])), From: plan.Step(number(t, p["from"])), Replica: plan.Replica(number(t, words[1])),
			Parts: parseParts(t, p["parts"]), Due: p["due"] != "",
		}
	case "close-round":
		return CloseRound{Generation: plan.Generation(number(t, p["generation"])), From: plan.Step(number(t, p["from"]))}
	case "leave-out":
		return LeaveOut{Generation: plan.Generation(number(t, p["generation"])), From: plan.Step(number(t, p["from"])), Replica: plan.Replica(number(t, words[1])), Reason: p["reason"]}
	case "rollback":
		return Rollback{From: plan.Step(number(t, p["from"])), To: plan.Step(number(t, p["to"])), Term: plan.Term(number(t, p["term"]))}
	}
	t.Fatalf("unknown command %q", line)
	return nil
}

// testInvite is an invite of this serial, with a key made from it.
func testInvite(serial uint64, issuer plan.PeerID, uses int, owner bool) Invite {
	return Invite{
		Serial: serial, Issuer: issuer, Made: time.Now().Unix(), RedeemBefore: time.Now().Add(MaxInviteTime - 24*time.Hour).Unix(), Owner: owner, Uses: uses,
		Bearer: keyOf(bearerOf(serial)).private.Public().(ed25519.PublicKey), Signed: fmt.Appendf(nil, "invite %d", serial),
	}
}

// testRedeem lets a peer in by such an invite, whose holder has signed for the peer bound.
func testRedeem(serial uint64, peer, bound plan.PeerID) Redeem {
	return Redeem{Serial: serial, Peer: peer, Signature: bearer.Bind(keyOf(bearerOf(serial)).private, fmt.Appendf(nil, "invite %d", serial), bound)}
}

func bearerOf(serial uint64) plan.PeerID { return plan.PeerID(fmt.Sprintf("bearer of %d", serial)) }

// parsePlan reads stages=a:0-2,b:2-4 as one replica with all micro-batches, and stages=a:0-4;b:0-4 as two with half of them.
func parsePlan(t *testing.T, p map[string]string) Entry {
	pl := plan.Plan{
		Run: plan.RunID(p["run"]), Generation: plan.Generation(number(t, p["generation"])),
		Start: plan.Step(number(t, p["start"])), Schedule: "1f1b",
	}
	if p["h"] != "" {
		pl.Local = &plan.Local{Rounds: plan.Rounds{Every: plan.Step(number(t, p["h"])), Fragments: 1}, Codec: cmp.Or(p["codec"], "int8")}
	}
	pl.Stream.Fresh = int64(number(t, p["fresh"]))
	for _, given := range list(p["given"]) {
		first, end, _ := strings.Cut(given, "-")
		pl.Stream.Given = append(pl.Stream.Given, plan.MicroRange{First: int64(number(t, first)), End: int64(number(t, end))})
	}
	replicas, owns := strings.Split(p["stages"], ";"), list(p["own"])
	for r, stages := range replicas {
		share := int(number(t, p["micros"])) / len(replicas)
		pl.Replicas = append(pl.Replicas, parsePipeline(t, plan.Pipeline{FirstMicro: plan.Micro(r * share), Micros: share}, stages, p["holder"]))
		if len(owns) > 0 {
			pl.Replicas[r].Own = parseBegin(t, owns[r])
		}
	}
	return SetPlan{Plan: pl, Term: plan.Term(number(t, p["term"])), Epoch: number(t, p["epoch"]), Reasons: list(p["reasons"])}
}

// parsePipeline adds stages to a replica.
func parsePipeline(t *testing.T, pipe plan.Pipeline, stages, holder string) plan.Pipeline {
	for _, stage := range list(stages) {
		peer, layers, _ := strings.Cut(stage, ":")
		first, end, _ := strings.Cut(layers, "-")
		pipe.Stages = append(pipe.Stages, plan.Placement{
			Peer: plan.PeerID(peer), Device: "cpu", Holder: plan.PeerID(holder),
			Layers: plan.LayerRange{First: int(number(t, first)), End: int(number(t, end))},
		})
		pipe.Warmups = append(pipe.Warmups, 1)
	}
	return pipe
}

// parseSaved reads layers=0,1 with one chunk each, made of the word chunk.
func parseSaved(t *testing.T, p map[string]string) Entry {
	e := StageSaved{
		Step: plan.Step(number(t, p["step"])), Generation: plan.Generation(number(t, p["generation"])), Last: p["last"] != "", Unstored: number(t, p["unstored"]),
		Own: parseOwn(t, p),
	}
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

// parseSalvage reads parts=0/1:2-4:b:10: replica, stage, layers, who saves them, and from which step it replays.
func parseSalvage(t *testing.T, p map[string]string) Entry {
	e := Salvage{Generation: plan.Generation(number(t, p["generation"])), Step: plan.Step(number(t, p["step"]))}
	for _, text := range list(p["parts"]) {
		words := append(strings.Split(text, ":"), "")
		replica, stage, _ := strings.Cut(words[0], "/")
		first, end, _ := strings.Cut(words[1], "-")
		e.Parts = append(e.Parts, SalvagePart{
			Replica: plan.Replica(number(t, replica)), Stage: plan.Stage(number(t, stage)),
			Layers: plan.LayerRange{First: int(number(t, first)), End: int(number(t, end))},
			By:     plan.PeerID(words[2]), From: plan.Step(number(t, words[3])),
		})
	}
	return e
}

// describeMembers prints the roster, and what is shown of members' speeds.
func describeMembers(s State) string {
	var b strings.Builder
	for _, m := range s.Members {
		fmt.Fprintf(&b, " %s=%s/%d", m.Peer, m.State, m.ProcessEpoch)
		if len(m.Addrs) > 0 {
			fmt.Fprintf(&b, "@%s", strings.Join(m.Addrs, ","))
		}
		if m.GraceS > 0 {
			fmt.Fprintf(&b, " within %d s", m.GraceS)
		}
		if m.Faults > 0 {
			fmt.Fprintf(&b, "!%d", m.Faults)
		}
		if m.Blamed != nil {
			fmt.Fprintf(&b, "<%d", m.Blamed.Until)
		}
	}
	for _, m := range s.Members {
		if m.Shown != (plan.Shown{}) {
			fmt.Fprintf(&b, "; %s has shown %d in %d", m.Peer, m.Shown.FLOPS, m.Shown.Generation)
			if !m.Shown.Held {
				fmt.Fprintf(&b, " lowered %d", m.Shown.Lowered)
			}
			if m.Shown.Broke > 0 {
				fmt.Fprintf(&b, " broke %d waited %d", m.Shown.Broke, m.Shown.Waited)
			}
		}
	}
	return b.String()
}

// describe prints a state on one line.
func describe(s State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch %d:", s.Epoch)
	b.WriteString(describeMembers(s))
	for _, c := range s.CopyFailures {
		fmt.Fprintf(&b, "; copies of %s do not get to %s", c.Peer, c.Holder)
	}
	for st := range s.Plan.StageCount() {
		if len(s.CopyFailures) > 0 {
			fmt.Fprintf(&b, "; %s has those of stage %d", s.Holder(plan.StageID{Stage: plan.Stage(st)}), st)
		}
	}
	for _, g := range s.Grants {
		fmt.Fprintf(&b, "; grant %d %v", g.Serial, g.Peers)
		if g.Revoked {
			b.WriteString(" revoked")
		}
	}
	if len(s.Owners) > 1 {
		fmt.Fprintf(&b, "; owners %v", s.Owners)
	}
	for _, r := range s.Revoked {
		fmt.Fprintf(&b, "; %s %s", r.Peer, s.Removal(r))
	}
	for _, v := range s.Vouchers {
		fmt.Fprintf(&b, "; voucher %d from %v to %v", v.Number, v.From, v.Voters)
	}
	if s.Run != nil {
		fmt.Fprintf(&b, "; run %s incarnation %d", s.Run.Run, s.Incarnation)
	}
	if n := len(s.Departures.Newest); n > 0 {
		fmt.Fprintf(&b, "; %d departed, %d lost", n, s.Departures.Lost)
	}
	if s.Plan.Generation > 0 {
		fmt.Fprintf(&b, "; generation %d of term %d from step %d", s.Plan.Generation, s.Term, s.Plan.Start)
	}
	if s.Checkpoint.Step > 0 {
		fmt.Fprintf(&b, "; checkpoint %s", pieces(s.Checkpoint))
	}
	b.WriteString(describeRounds(s))
	if s.Salvage != nil {
		fmt.Fprintf(&b, "; salvage of step %d", s.Salvage.Step)
		for _, part := range s.Salvage.Parts {
			fmt.Fprintf(&b, " [%d,%d) by %s", part.Layers.First, part.Layers.End, part.By)
		}
	}
	if e := s.Substitute; e != nil {
		fmt.Fprintf(&b, "; %s in the place of %s", e.By, e.Lost)
		if e.Replays {
			fmt.Fprintf(&b, " from step %d", e.From)
		}
	}
	for _, o := range s.Older {
		if strings.ContainsAny(pieces(o), "+~") {
			fmt.Fprintf(&b, "; older %s", pieces(o))
		} else {
			fmt.Fprintf(&b, "; older %d", o.Step)
		}
	}
	for _, p := range s.Pending {
		fmt.Fprintf(&b, "; pending %s", pieces(p))
	}
	if s.Ended() {
		b.WriteString("; ended")
	}
	if s.PauseWanted > 0 {
		fmt.Fprintf(&b, "; pause %d", s.PauseWanted)
	}
	for _, e := range s.Blames {
		fmt.Fprintf(&b, "; %s of %q at %d", e.Kind, e.Peer, e.Step)
	}
	if e, ok := s.Diverged(); ok {
		fmt.Fprintf(&b, "; diverged at %d", e.Step)
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
	fmt.Fprintf(&b, "%d%s", c.Step, layers(c.Layers))
	for _, o := range c.Own {
		fmt.Fprintf(&b, " own %d%s", o.Replica, layers(o.Layers))
	}
	return b.String()
}

func layers(all []LayerRef) string {
	var b strings.Builder
	for _, l := range all {
		own, copies := l.parts()
		for i, p := range own {
			for _, u := range l.Unstored {
				if u.Peer == p {
					own[i] = plan.PeerID(fmt.Sprintf("~%s/%d", p, u.ProcessEpoch))
				}
			}
		}
		for _, p := range copies {
			own = append(own, "+"+p)
		}
		fmt.Fprintf(&b, " %d%v", l.Layer, own)
	}
	return b.String()
}

func TestRosterIsBounded(t *testing.T) {
	var s State
	var err error
	for i := range MaxMembers {
		if s, err = Apply(s, Join{Peer: plan.PeerID(fmt.Sprintf("p%04d", i)), ProcessEpoch: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Apply(s, Join{Peer: "more", ProcessEpoch: 1}); !errors.Is(err, ErrRejected) {
		t.Fatalf("one member too many gives %v", err)
	}
	const more = MaxMembers + MaxMembers/10
	for i := range more {
		peer := plan.PeerID(fmt.Sprintf("p%04d", i))
		if s, err = Apply(s, SetMemberState{Peer: peer, ProcessEpoch: 1, State: Gone}); err != nil {
			t.Fatal(err)
		}
		if s, err = Apply(s, Join{Peer: plan.PeerID(fmt.Sprintf("p%04d", i+MaxMembers)), ProcessEpoch: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.Members) != 2*MaxMembers || s.present() != MaxMembers {
		t.Errorf("%d members, %d of them present", len(s.Members), s.present())
	}
	if _, ok := s.Member("p0000"); ok {
		t.Error("the member gone longest is remembered")
	}
	if m, ok := s.Member(plan.PeerID(fmt.Sprintf("p%04d", more-1))); !ok || m.State != Gone {
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

// Attack: a profile that no machine has, in a Join, an Update of the peer's own, and one from gossip.
func TestAbsurdProfilesAreRefused(t *testing.T) {
	device := plan.DeviceProfile{Name: "cuda:0", MatMulFLOPS: 1e12, MemoryBytesPerS: 1e11, MemoryFreeBytes: 1 << 36}
	fast := device
	fast.MatMulFLOPS = 1e17
	s, err := Apply(State{}, Join{Peer: "m", ProcessEpoch: 1, Profile: plan.Profile{Devices: []plan.DeviceProfile{device}}})
	if err != nil {
		t.Fatal(err)
	}
	for want, p := range map[string]plan.Profile{
		`devices[1].name is "cuda:0"`:                  {Devices: []plan.DeviceProfile{device, device}},
		"devices[0].matmul_flops is 10000000000000000": {Devices: []plan.DeviceProfile{fast}},
		"links[0].peer is the profile's own":           {Links: []plan.LinkProfile{{Peer: "m"}}},
	} {
		for _, e := range []Entry{Join{Peer: "m", ProcessEpoch: 2, Profile: p}, Update{Peer: "m", ProcessEpoch: 1, Profile: p}} {
			if next, err := Apply(s, e); !errors.Is(err, ErrRejected) || !errors.Is(err, plan.ErrBadProfile) || !strings.Contains(err.Error(), want) || !reflect.DeepEqual(next, s) {
				t.Errorf("%T: %v, want %q", e, err, want)
			}
		}
	}
	for _, addrs := range [][]string{{"/ip4/\x1b[2J"}, {strings.Repeat("x", maxText+1)}} {
		if _, err := Apply(s, Update{Peer: "m", ProcessEpoch: 1, Addrs: addrs}); !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), "addrs[0]") {
			t.Errorf("%q: %v", addrs, err)
		}
	}
}

// TestNoPlanChangesHowStepsRound: what the run leaves to its first plan stays as that has it, a codec also over plans without
// boundaries.
func TestNoPlanChangesHowStepsRound(t *testing.T) {
	s := planned(t)
	spec := *s.Run
	spec.Train.Storage = plan.StorageAuto
	spec.Train.Codec, _ = plan.ParseCodecRule("auto")
	s.Run = &spec
	set := func(storage model.Storage, codec string, ends ...int) error {
		pipe, first := plan.Pipeline{Micros: 2}, 0
		for i, end := range ends {
			place := plan.Placement{Peer: "a", Device: fmt.Sprintf("cuda:%d", i), Layers: plan.LayerRange{First: first, End: end}, Storage: storage}
			if first = end; end < 3 {
				place.Codec = codec
			}
			pipe.Stages, pipe.Warmups = append(pipe.Stages, place), append(pipe.Warmups, 0)
		}
		next, err := Apply(s, SetPlan{Epoch: s.Epoch, Term: 1, Plan: plan.Plan{
			Run: "run", Generation: s.Plan.Generation + 1, Schedule: "1f1b", Codec: codec, Replicas: []plan.Pipeline{pipe},
		}})
		s = next
		return err
	}
	for i, c := range []struct {
		storage model.Storage
		codec   string
		ends    []int
		refusal string
	}{
		{model.StorageBF16, "", []int{3}, "a run keeps one storage"},
		{model.StorageF32, "", []int{1, 3}, "it names no codec"},
		{model.StorageF32, "", []int{3}, ""},
		{model.StorageF32, "int8", []int{1, 3}, ""},
		{model.StorageF32, "f32", []int{1, 3}, "a run keeps one codec"},
		{model.StorageF32, "", []int{3}, "a run keeps one codec"},
		{model.StorageF32, "int8", []int{3}, ""},
		{model.StorageF32, "bf16", []int{2, 3}, "a run keeps one codec"},
		{model.StorageF32, "int8", []int{2, 3}, ""},
	} {
		err := set(c.storage, c.codec, c.ends...)
		if c.refusal == "" && err != nil || c.refusal != "" && (!errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), c.refusal)) {
			t.Errorf("plan %d: %v, want %q", i, err, c.refusal)
		}
	}
}

// TestClaimsCountInWhatThePlanStores: a rate in bf16 makes no claim bolder, nor smaller, in a run that has settled on float32.
func TestClaimsCountInWhatThePlanStores(t *testing.T) {
	s := planned(t)
	spec := *s.Run
	spec.Train.Storage = plan.StorageAuto
	s.Run, s.Owners = &spec, []plan.PeerID{"a"}
	b := s.Members[0]
	b.Peer = "b"
	s.Members = append(slices.Clone(s.Members), b)
	rate := func(peer plan.PeerID, full, halves int64) {
		i, ok := s.find(peer)
		if !ok {
			t.Fatalf("no member %s", peer)
		}
		s.Members[i].Profile = plan.Profile{Devices: []plan.DeviceProfile{{Name: "cpu", MatMulFLOPS: full, MatMulBF16FLOPS: halves, MemoryBytesPerS: 1e10, MemoryFreeBytes: 1 << 30}}}
	}
	rate("a", 90e9, 0)
	rate("b", 80e9, 160e9)
	counted := func() int64 {
		for _, c := range s.Counted() {
			if c.Peer == "b" {
				return c.Profile.Devices[0].MatMulFLOPS
			}
		}
		t.Fatal("b does not count")
		return 0
	}
	if got := counted(); got != 80e9 {
		t.Errorf("%d of 80e9 in a run that stores f32", got)
	}
	s.Plan.Generation = 0
	if got := counted(); got != 45e9 {
		t.Errorf("%d, want 45e9 while bf16 may be chosen", got)
	}
}
