package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"pnode/kernels"
	"pnode/planner/plan"
)

// entries is one of each kind.
func entries() []Entry {
	chunk := plan.Hash{1, 2, 3}
	return []Entry{
		testRun(),
		Join{Peer: "a", ProcessEpoch: 1, Addrs: []string{"/ip4/10.0.0.1/udp/4001/quic-v1"}, Label: "desk", Profile: plan.Profile{Devices: []plan.DeviceProfile{{Name: "cpu", MatMulFLOPS: 1e10}}}},
		Update{Peer: "a", ProcessEpoch: 1},
		SetMemberState{Peer: "a", ProcessEpoch: 1, State: Active, Reason: "measured"},
		SetPlan{Term: 3, Epoch: 2, Reasons: []string{"one node"}, Plan: plan.Plan{Run: "run", Generation: 1, Schedule: "1f1b"}},
		StageSaved{Step: 10, Generation: 1, Own: new(plan.Replica), Layers: []LayerRef{{Layer: 0, SizeBytes: 5, Chunks: []plan.Hash{chunk}, Holders: []plan.PeerID{"a"}}}},
		WantPause{Count: 1},
		WantStop{},
		Resume{Incarnation: 2},
		Finish{},
		Rollback{From: 20, To: 10, Term: 2, Reason: "lost"},
		Lead{Peer: "a", Term: 2},
		testInvite(7, "a", 3, false),
		testRedeem(7, "b", "b"),
		Blame{Peer: "a", Accuser: "b", Kind: plan.BadTensor, Generation: 2, Step: 12, Detail: "3 of 64 values are not finite", Until: 60},
		Shown{Generation: 2, Members: []ShownMember{{Peer: "a", FLOPS: 5e11, Held: true}, {Peer: "b", FLOPS: 1}}},
		Revoke{By: "a", Peer: "b", Reason: "why"},
		Vouch{made(1, 2, "a", "a,b", "a")},
		Salvage{Generation: 2, Step: 12, Parts: []SalvagePart{{Replica: 1, Stage: 2, Layers: plan.LayerRange{First: 3, End: 5}, By: "a", From: 10}}},
		Extend{Steps: 900},
		Recover{testRecovery("c", 7, "a,b,c", "a,b", "c")},
		Substitute{Generation: 1, Lost: "a", ProcessEpoch: 1, By: "b", Reason: "its process has ended"},
		Substitute{Generation: 1, Lost: "a", ProcessEpoch: 1, By: "b", Replays: true, From: 10},
		KeptWhole{Peer: "a", Step: 10, Generation: 1, Own: new(plan.Replica)},
		CopyFailed{Peer: "a", Holder: "b"},
		Gathered{Generation: 1, From: 20, Replica: 1, Parts: []plan.Part{{Steps: 9, Sum: chunk}, {Steps: 10, Sum: chunk}}, Seals: []plan.Hash{chunk, {}}, Due: true},
		CloseRound{Generation: 1, From: 20},
		LeaveOut{Generation: 1, From: 20, Replica: 1, Reason: "its process has ended"},
	}
}

// numbers are the kinds of entries, in this order.
var numbers = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 19, 20, 21, 22, 23, 24, 24, 25, 26, 27, 28, 29}

func encoded(t testing.TB, e Entry) []byte {
	b, err := EncodeEntry(e)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEntryRoundTrip(t *testing.T) {
	for i, e := range entries() {
		if kindOf(e) != numbers[i] {
			t.Errorf("%T has kind %d, want %d for ever", e, kindOf(e), numbers[i])
		}
		back, err := DecodeEntry(encoded(t, e))
		if err != nil || !reflect.DeepEqual(back, e) {
			t.Errorf("%#v came back as %#v, %v", e, back, err)
		}
	}
}

// TestTheLargestProfileFits: whoever has as many devices and links as a profile takes can join.
func TestTheLargestProfileFits(t *testing.T) {
	var times kernels.WorkTimes
	for w := kernels.WorkProducts; w <= kernels.WorkCopy; w++ {
		for i := range times.Of(w) {
			times.Of(w)[i] = plan.MaxWorkNanos
		}
	}
	join := Join{Peer: "a", ProcessEpoch: 1}
	for i := range plan.MaxDevices {
		join.Profile.Devices = append(join.Profile.Devices, plan.DeviceProfile{
			Name: fmt.Sprintf("cuda:%d", i), Model: "NVIDIA GeForce RTX 4090 Laptop GPU with a long name", Kind: strings.Repeat("k", 64), MatMulFLOPS: plan.MaxFLOPS, AttentionFLOPS: plan.MaxFLOPS,
			MatMulBF16FLOPS: plan.MaxFLOPS, MatMulF16FLOPS: plan.MaxFLOPS, MemoryBytesPerS: plan.MaxMemoryBytesPerS, CopyBytesPerS: plan.MaxMemoryBytesPerS,
			MemoryFreeBytes: plan.MaxMemoryBytes, HostFreeBytes: plan.MaxMemoryBytes, Times: times, TimesBF16: times, TimesF16: times,
		})
	}
	for i := range plan.MaxLinks {
		join.Profile.Links = append(join.Profile.Links, plan.LinkProfile{
			Peer: plan.PeerID(fmt.Sprintf("%052d", i)), RTTNanos: plan.MaxLinkNanos, JitterNanos: plan.MaxLinkNanos, BytesPerS: plan.MaxLinkBytesPerS,
		})
	}
	if err := join.Profile.Validate("a"); err != nil {
		t.Fatal(err)
	}
	encoded(t, join)
}

func TestEntryRefused(t *testing.T) {
	good := encoded(t, WantPause{Count: 1})
	for name, b := range map[string][]byte{
		"empty":         nil,
		"no kind":       good[:1],
		"no body":       good[:2],
		"cut":           good[:len(good)-1],
		"version":       append([]byte{2}, good[1:]...),
		"kind":          append([]byte{1, 200}, good[2:]...),
		"zero kind":     append([]byte{1, 0}, good[2:]...),
		"unknown field": []byte("\x01\x07{\"count\":1,\"more\":2}"),
		"trailing":      append(bytes.Clone(good), "{}"...),
		"too long":      make([]byte, MaxEntryBytes+1),
	} {
		if e, err := DecodeEntry(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
	if _, err := EncodeEntry(SetPlan{Reasons: []string{string(make([]byte, MaxEntryBytes))}}); !errors.Is(err, ErrMalformed) {
		t.Errorf("an entry over the limit is encoded: %v", err)
	}
}

func TestStateRefused(t *testing.T) {
	good, err := EncodeState(planned(t))
	if err != nil {
		t.Fatal(err)
	}
	holders := func(whole int, holders ...plan.PeerID) []byte {
		s := planned(t)
		s.Older = []Checkpoint{{Step: 1, Generation: 1, Layers: []LayerRef{{SizeBytes: 1, Holders: holders, Whole: whole}}}}
		b, err := EncodeState(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if _, err := DecodeState(bytes.NewReader(holders(1, "a", "b"))); err != nil {
		t.Errorf("a holder and a whole copy: %v", err)
	}
	for name, b := range map[string][]byte{
		"empty":              nil,
		"cut":                good[:len(good)/2],
		"version":            append([]byte{9}, good[1:]...),
		"trailing":           append(bytes.Clone(good), '{'),
		"nobody has a layer": holders(0),
		"whole copies alone": holders(1, "a"),
		"fewer than none":    holders(-1, "a"),
		"too many holders":   holders(0, slices.Repeat([]plan.PeerID{"a"}, MaxHolders+1)...),
	} {
		if _, err := DecodeState(bytes.NewReader(b)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func testLog() *raft.Log {
	return &raft.Log{Index: 7, Term: 3, Type: raft.LogConfiguration, Data: []byte("data"), Extensions: []byte("more"), AppendedAt: time.Unix(1, 2)}
}

func TestLogRecord(t *testing.T) {
	for _, l := range []*raft.Log{testLog(), {Index: 1, Term: 1}} {
		b := encodeLog(l)
		var back raft.Log
		if err := decodeLog(b, &back); err != nil || !reflect.DeepEqual(&back, l) {
			t.Errorf("%+v came back as %+v, %v", l, back, err)
		}
		for i := range b {
			bad := bytes.Clone(b)
			bad[i] ^= 0x10
			if err := decodeLog(bad, &back); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d flipped: %v", i, err)
			}
		}
		for i := range b {
			if err := decodeLog(b[:i], &back); err == nil {
				t.Fatalf("cut to %d bytes: no error", i)
			}
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	for _, e := range entries() {
		f.Add(encoded(f, e))
	}
	start, local := planned(f), inRounds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEntry(b)
		if err != nil {
			return
		}
		again, err := DecodeEntry(encoded(t, e))
		if err != nil || !bytes.Equal(encoded(t, again), encoded(t, e)) {
			t.Fatalf("%#v encodes to %#v, %v", e, again, err)
		}
		for _, s := range []State{{}, start, local} {
			next, err := Apply(s, e)
			if err != nil {
				continue
			}
			if twice, err := Apply(next, e); err != nil || !reflect.DeepEqual(next, twice) {
				t.Fatalf("%#v applied twice gives %v, %v", e, twice, err)
			}
			if _, err := EncodeState(next); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzDecodeState(f *testing.F) {
	lost, nobody, many := restorable().without("c"), restorable().without("c"), restorable().without("c")
	nobody.Checkpoint = checkpointOf(20, 2, nil, nil, nil)
	many.Checkpoint = checkpointOf(20, 2, by("defghijkl"), by("b"), by("c"))
	lost.Plan, nobody.Plan, many.Plan = plan.Plan{}, plan.Plan{}, plan.Plan{}
	for _, s := range []State{planned(f), lost, nobody, many, inRounds(f)} {
		b, err := EncodeState(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeState(bytes.NewReader(b))
		if err != nil {
			return
		}
		if _, err := EncodeState(s); err != nil {
			t.Fatal(err)
		}
		Restore(s)
		RecoveryLine(s)
		NewestWhole(s)
		if s.Round != nil {
			for q := range s.Plan.Replicas {
				parts := slices.Repeat([]plan.Part{{Steps: 1}}, len(s.Plan.Replicas))
				next, _ := Apply(s, Gathered{Generation: s.Plan.Generation, From: s.Round.From, Replica: plan.Replica(q), Parts: parts})
				_, _ = Apply(next, LeaveOut{Generation: s.Plan.Generation, From: s.Round.From, Replica: plan.Replica(q)})
			}
		}
		for _, m := range s.Members {
			for _, c := range append([]Checkpoint{s.Checkpoint}, s.Older...) {
				_, _ = Apply(s, KeptWhole{Peer: m.Peer, Step: c.Step, Generation: c.Generation})
				_, _ = Apply(s, StageSaved{Step: c.Step, Generation: c.Generation, Layers: c.Layers})
				for _, o := range c.Own {
					_, _ = Apply(s, StageSaved{Step: c.Step, Generation: c.Generation, Layers: o.Layers, Own: &o.Replica})
				}
			}
		}
	})
}

func FuzzDecodeLog(f *testing.F) {
	f.Add(encodeLog(testLog()))
	f.Fuzz(func(t *testing.T, b []byte) {
		var l raft.Log
		if decodeLog(b, &l) == nil && !bytes.Equal(encodeLog(&l), b) {
			t.Fatalf("%x is read as %+v", b, l)
		}
	})
}

func FuzzReadRequest(f *testing.F) {
	f.Add(appendRequest(nil, request{op: opPropose, hops: 1, body: []byte("body")}))
	f.Add(appendResponse(nil, response{code: codeStale, body: []byte("why")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if q, err := readRequest(bytes.NewReader(b)); err == nil && !bytes.HasPrefix(b, appendRequest(nil, q)) {
			t.Fatalf("%x is read as %+v", b, q)
		}
		if r, err := readResponse(bytes.NewReader(b)); err == nil && !bytes.HasPrefix(b, appendResponse(nil, r)) {
			t.Fatalf("%x is read as %+v", b, r)
		}
	})
}
