package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"testing"

	"pnode/planner/plan"
)

func sampleReport() Report {
	return Report{
		Losses:     []MicroLoss{{Micro: 0, Loss: 5.5}, {Micro: 70000, Loss: math.Inf(1)}},
		SumSquares: []PartSquare{{Part: 3, Sum: 1e-30}},
	}
}

func TestReportRoundTrip(t *testing.T) {
	for _, want := range []Report{{}, sampleReport(), {Losses: make([]MicroLoss, MaxReportEntries), SumSquares: make([]PartSquare, MaxReportEntries)}} {
		b := AppendReport(nil, want)
		if len(b) > MaxReportBytes {
			t.Fatalf("%d bytes, the bound is %d", len(b), MaxReportBytes)
		}
		got, err := DecodeReport(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

func TestReportRefusals(t *testing.T) {
	huge := AppendReport(nil, Report{})
	binary.LittleEndian.PutUint32(huge, math.MaxUint32)
	good := AppendReport(nil, sampleReport())
	tests := map[string]struct {
		b    []byte
		want error
	}{
		"empty":          {nil, ErrLength},
		"counts":         {huge, ErrLength},
		"cut":            {good[:len(good)-1], ErrLength},
		"trailing":       {append(bytes.Clone(good), 0), ErrLength},
		"no zeros":       {append(append(bytes.Clone(good[:8]), 1), good[9:]...), ErrValue},
		"negative micro": {AppendReport(nil, Report{Losses: []MicroLoss{{Micro: -1}}}), ErrValue},
		"negative layer": {AppendReport(nil, Report{SumSquares: []PartSquare{{Part: -1}}}), ErrValue},
		"too many":       {AppendReport(nil, Report{Losses: make([]MicroLoss, MaxReportEntries+1)}), ErrLength},
	}
	for name, tt := range tests {
		if _, err := DecodeReport(tt.b); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
}

func TestCommitRoundTrip(t *testing.T) {
	heldOut, f32, course := 2.25, 2.125, plan.ScheduleChoice{Schedule: "1f1b", Warmups: [][]int{{1, 0}}}.String()
	for _, want := range []Commit{
		{HeldOut: &heldOut, HeldOutF32: &f32},
		{HeldOut: &heldOut, HeldOutF32: &f32, Save: true, Next: course},
		{},
		{Step: 5, Loss: 4.5, Norm: 0.1, GradScale: 1, Save: true},
		{Step: math.MaxUint64, Loss: -1, Norm: math.Inf(1), HeldOut: &heldOut, Stop: true},
	} {
		got, err := DecodeCommit(AppendCommit(nil, want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

func TestCommitRefusals(t *testing.T) {
	good := AppendCommit(nil, Commit{Step: 1})
	flags, orphan := bytes.Clone(good), bytes.Clone(good)
	flags[commitBytes-1] = flagsEnd
	orphan[32] = 1
	heldOut := 2.25
	both := AppendCommit(nil, Commit{HeldOut: &heldOut, HeldOutF32: &heldOut})
	f32 := bytes.Clone(both)
	f32[commitBytes-1] = flagHeldOutF32
	tests := map[string]struct {
		b    []byte
		want error
	}{
		"cut": {good[:commitBytes-1], ErrLength}, "no course": {append(bytes.Clone(good), 0), ErrValue}, "long": {append(bytes.Clone(good), make([]byte, plan.MaxScheduleChoiceBytes+1)...), ErrLength},
		"flags": {flags, ErrValue}, "held-out without flag": {orphan, ErrValue},
		"half of a float": {both[:commitBytes+4], ErrValue}, "one held-out loss without the other": {f32, ErrValue},
	}
	for name, tt := range tests {
		if _, err := DecodeCommit(tt.b); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
}

func TestChunkRequestRoundTrip(t *testing.T) {
	want := []plan.Hash{{1, 2, 3}, {31: 9}}
	b := AppendChunkRequest(nil, want)
	n, err := DecodeChunkCount(b[:ChunkCountBytes])
	if err != nil || n != len(want) {
		t.Fatalf("count %d, %v", n, err)
	}
	got, err := DecodeChunkHashes(b[ChunkCountBytes:])
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, %v", got, err)
	}
}

func TestChunkRefusals(t *testing.T) {
	for _, n := range []uint32{0, MaxChunkHashes + 1, math.MaxUint32} {
		if _, err := DecodeChunkCount(binary.LittleEndian.AppendUint32(nil, n)); !errors.Is(err, ErrLength) {
			t.Errorf("count %d: %v", n, err)
		}
	}
	for _, n := range []int{0, 31, 33, 32 * (MaxChunkHashes + 1)} {
		if _, err := DecodeChunkHashes(make([]byte, n)); !errors.Is(err, ErrLength) {
			t.Errorf("%d bytes of hashes: %v", n, err)
		}
	}
	for name, b := range map[string][]byte{
		"status": AppendChunkHeader(nil, 0, 1), "size": AppendChunkHeader(nil, ChunkFound, MaxChunkBytes+1),
		"missing with bytes": AppendChunkHeader(nil, ChunkMissing, 1), "cut": {1},
	} {
		if _, _, err := DecodeChunkHeader(b); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	if status, n, err := DecodeChunkHeader(AppendChunkHeader(nil, ChunkFound, MaxChunkBytes)); err != nil || status != ChunkFound || n != MaxChunkBytes {
		t.Errorf("largest chunk: %v %d %v", status, n, err)
	}
}

func TestOuterRefusals(t *testing.T) {
	for _, n := range []int{0, 7, 8, 10, MaxOuterReportBytes + 8} {
		if _, err := DecodeOuterReport(make([]byte, n)); !errors.Is(err, ErrLength) {
			t.Errorf("losses in %d bytes: %v", n, err)
		}
	}
	for _, n := range []int{1, 32, SealedBytes - 1, SealedBytes + 1, MaxOuterHaveBytes + SealedBytes} {
		if _, err := DecodeOuterHave(make([]byte, n)); !errors.Is(err, ErrLength) {
			t.Errorf("hashes in %d bytes: %v", n, err)
		}
	}
	for name, b := range map[string][]byte{"unknown flags": {1}, "a second held-out loss alone": append([]byte{flagHeldOutF32}, make([]byte, 8)...), "no held-out loss": {flagHeldOut}} {
		if _, err := DecodeOuterReport(b); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	r, err := DecodeOuterReport(make([]byte, 1+3*8))
	hashes, failed := DecodeOuterHave(make([]byte, OuterHaveBytes(5)))
	if err != nil || failed != nil || r.Steps() != 3 || len(hashes) != 5 {
		t.Errorf("losses of %d steps, %v, and %d hashes, %v", r.Steps(), err, len(hashes), failed)
	}
}

func TestF32KeepsEveryBit(t *testing.T) {
	want := []float32{0, float32(math.Copysign(0, -1)), 1.5, math.MaxFloat32, math.SmallestNonzeroFloat32, float32(math.Inf(-1)), math.Float32frombits(0x7fc12345)}
	b := AppendF32([]byte{9}, want)
	if b[0] != 9 || !bytes.Equal(b[9:13], []byte{0, 0, 0xc0, 0x3f}) { // 1.5 is 0x3fc00000
		t.Fatalf("bytes are %x", b)
	}
	got := make([]float32, len(want))
	if err := DecodeF32(got, b[1:]); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Errorf("element %d is %#x, want %#x", i, math.Float32bits(got[i]), math.Float32bits(want[i]))
		}
	}
	if err := DecodeF32(got, b); !errors.Is(err, ErrLength) {
		t.Errorf("one byte too many: %v", err)
	}
}

func FuzzDecodeReport(f *testing.F) {
	f.Add(AppendReport(nil, Report{}))
	f.Add(AppendReport(nil, sampleReport()))
	f.Add(AppendOuterReport(nil, OuterReport{Losses: []float64{5.5, 2.25}}))
	one, two := 3.25, 3.125
	f.Add(AppendOuterReport(nil, OuterReport{Losses: []float64{5.5, 2.25}, HeldOut: &one}))
	f.Add(AppendOuterReport(nil, OuterReport{Losses: []float64{5.5}, HeldOut: &one, HeldOutF32: &two}))
	f.Add(AppendOuterHave(nil, []Sealed{{plan.Hash{1}, Seal{2}}, {plan.Hash{3}, Seal{4}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := DecodeOuterReport(b); err == nil && !bytes.Equal(AppendOuterReport(nil, r), b) {
			t.Fatalf("%x decodes to %+v, which encodes otherwise", b, r)
		}
		if hashes, err := DecodeOuterHave(b); err == nil && !bytes.Equal(AppendOuterHave(nil, hashes), b) {
			t.Fatalf("%x decodes to %v, which encodes otherwise", b, hashes)
		}
		if r, err := DecodeReport(b); err == nil && !bytes.Equal(AppendReport(nil, r), b) {
			t.Fatalf("%x decodes to %+v, which encodes otherwise", b, r)
		}
	})
}

func FuzzDecodeCommit(f *testing.F) {
	heldOut := 1.5
	f.Add(AppendCommit(nil, Commit{Step: 3, Loss: 5, HeldOut: &heldOut, Save: true, Stop: true}))
	f.Add(AppendCommit(nil, Commit{}))
	f.Add(AppendCommit(nil, Commit{Step: 50, Loss: 5, Merge: true}))
	f.Add(AppendCommit(nil, Commit{HeldOut: &heldOut, HeldOutF32: &heldOut, Next: "1f1b 1,0 1,0"}))
	f.Add(AppendCommit(nil, Commit{Next: "1f1b 1,0 1,0"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := DecodeCommit(b); err == nil && !bytes.Equal(AppendCommit(nil, c), b) {
			t.Fatalf("%x decodes to %+v, which encodes otherwise", b, c)
		}
	})
}

func FuzzDecodeChunkHashes(f *testing.F) {
	f.Add(AppendChunkRequest(nil, []plan.Hash{{1}, {2}})[ChunkCountBytes:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if hashes, err := DecodeChunkHashes(b); err == nil && !bytes.Equal(AppendChunkRequest(nil, hashes)[ChunkCountBytes:], b) {
			t.Fatalf("%x decodes to %v, which encodes otherwise", b, hashes)
		}
	})
}

func FuzzDecodeChunkHeader(f *testing.F) {
	f.Add(AppendChunkHeader(nil, ChunkFound, 77))
	f.Add(AppendChunkHeader(nil, ChunkMissing, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, n, err := DecodeChunkHeader(b); err == nil && !bytes.Equal(AppendChunkHeader(nil, s, n), b) {
			t.Fatalf("%x decodes to %d, %d, which encodes otherwise", b, s, n)
		}
	})
}

func FuzzDecodeF32(f *testing.F) {
	f.Add(AppendF32(nil, []float32{1, -2, 3.5}))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		dst := make([]float32, len(b)/4)
		if err := DecodeF32(dst, b); err == nil && !bytes.Equal(AppendF32(nil, dst), b) {
			t.Fatalf("%x does not survive", b)
		} else if (err == nil) != (len(b)%4 == 0) {
			t.Fatalf("%d bytes: %v", len(b), err)
		}
	})
}

func BenchmarkF32(b *testing.B) {
	xs := make([]float32, 1<<20)
	buf := AppendF32(nil, xs)
	b.Run("append", func(b *testing.B) {
		b.SetBytes(4 << 20)
		for b.Loop() {
			buf = AppendF32(buf[:0], xs)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(4 << 20)
		for b.Loop() {
			if err := DecodeF32(xs, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}
