package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

func sampleFrame() Frame {
	return Frame{
		Tag:     Tag{Kind: Gradient, Generation: 7, Step: 1 << 40, Replica: 2, Stage: 3, Index: 11},
		Payload: []byte("twelve bytes"),
	}
}

// appendFrame appends header and payload.
func appendFrame(dst []byte, f Frame) []byte { return append(AppendHeader(dst, f), f.Payload...) }

// decodeFrame reads a frame that fills b.
func decodeFrame(b []byte, maxTensorBytes int) (Frame, error) {
	h, err := DecodeHeader(b, maxTensorBytes)
	if err != nil {
		return Frame{}, err
	}
	return Frame{Tag: h.Tag, Payload: b[HeaderBytes:]}, h.Verify(b[HeaderBytes:])
}

func TestFrameRoundTrip(t *testing.T) {
	frames := []Frame{
		sampleFrame(),
		{Tag: Tag{Kind: Heartbeat, Generation: math.MaxUint64}, Payload: []byte{}},
		{Tag: Tag{Kind: ReducePart, Generation: 1, Step: 1, Replica: math.MaxInt32, Stage: math.MaxInt32, Index: math.MaxInt32}, Payload: make([]byte, 1000)},
	}
	for _, want := range frames {
		got, err := decodeFrame(appendFrame(nil, want), 1000)
		if err != nil {
			t.Fatal(err)
		}
		if got.Tag != want.Tag || !bytes.Equal(got.Payload, want.Payload) {
			t.Fatalf("got %v with %d bytes, want %v with %d", got.Tag, len(got.Payload), want.Tag, len(want.Payload))
		}
	}
}

// TestFrameFlippedBits flips every single bit of a frame: each must be noticed.
func TestFrameFlippedBits(t *testing.T) {
	good := appendFrame(nil, sampleFrame())
	for bit := range 8 * len(good) {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		if f, err := decodeFrame(b, 1000); err == nil {
			t.Fatalf("flipped bit %d of byte %d went unnoticed: %v", bit%8, bit/8, f.Tag)
		}
	}
}

func TestFrameRefusals(t *testing.T) {
	tests := map[string]struct {
		change func(b []byte) []byte
		want   error
	}{
		"magic":        {func(b []byte) []byte { b[0] = 2; return b }, ErrMagic},
		"version":      {func(b []byte) []byte { b[4] = Version + 1; return b }, ErrVersion},
		"kind 0":       {func(b []byte) []byte { b[5] = 0; return b }, ErrKind},
		"unknown kind": {func(b []byte) []byte { b[5] = byte(kindEnd); return b }, ErrKind},
		"reserved":     {func(b []byte) []byte { b[6] = 1; return b }, ErrValue},
		"replica":      {func(b []byte) []byte { b[27] = 0x80; return b }, ErrValue},
		"too long":     {func(b []byte) []byte { binary.LittleEndian.PutUint32(b[36:], 1001); return b }, ErrLength},
		"heartbeat":    {func(b []byte) []byte { b[5] = byte(Heartbeat); return b }, ErrLength},
		"cut payload":  {func(b []byte) []byte { return b[:len(b)-1] }, ErrLength},
		"cut header":   {func(b []byte) []byte { return b[:HeaderBytes-1] }, ErrLength},
		"step":         {func(b []byte) []byte { b[16]++; return b }, ErrChecksum},
		"payload":      {func(b []byte) []byte { b[HeaderBytes]++; return b }, ErrChecksum},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := tt.change(appendFrame(nil, sampleFrame()))
			if _, err := decodeFrame(b, 1000); !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestTagValidate(t *testing.T) {
	good := sampleFrame().Tag
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*Tag){
		func(t *Tag) { t.Kind = 0 },
		func(t *Tag) { t.Replica = -1 },
		func(t *Tag) { t.Stage = -1 },
		func(t *Tag) { t.Index = -1 },
	} {
		bad := good
		change(&bad)
		if bad.Validate() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}

func TestKindNames(t *testing.T) {
	seen := map[string]bool{}
	for k := Kind(1); k < kindEnd; k++ {
		if name := k.String(); name == "" || seen[name] {
			t.Errorf("kind %d has the name %q", k, name)
		} else {
			seen[name] = true
		}
		if c := k.Class(); !c.Valid() || c == Chunks {
			t.Errorf("%v travels on %v", k, c)
		}
	}
	for c := Class(1); c < classEnd; c++ {
		if name := c.String(); name == "" || seen[name] {
			t.Errorf("class %d has the name %q", c, name)
		}
	}
}

func TestOpenRoundTrip(t *testing.T) {
	for _, want := range []Open{{Class: Control, Generation: 1, From: 5}, {Class: Reductions, Generation: math.MaxUint64, From: math.MaxUint64, To: 7}, {Class: Chunks, From: 1}} {
		good := AppendOpen(nil, want)
		got, err := DecodeOpen(good)
		if err != nil || got != want {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
		for bit := range 8 * len(good) {
			b := bytes.Clone(good)
			b[bit/8] ^= 1 << (bit % 8)
			if _, err := DecodeOpen(b); err == nil {
				t.Fatalf("flipped bit %d of byte %d went unnoticed", bit%8, bit/8)
			}
		}
	}
}

func TestOpenRefusesGenerationAgainstClass(t *testing.T) {
	for _, o := range []Open{{Class: Control, From: 1}, {Class: Control, Generation: 1}, {Class: Chunks, Generation: 3, From: 1}, {Class: Chunks}, {Class: classEnd, Generation: 3, From: 1}} {
		if o.valid() == nil {
			t.Errorf("%+v passes", o)
		}
	}
}

func FuzzDecodeHeader(f *testing.F) {
	f.Add(appendFrame(nil, sampleFrame()))
	f.Add(appendFrame(nil, Frame{Tag: Tag{Kind: Heartbeat, Generation: 1}}))
	f.Add(appendFrame(nil, Frame{Tag: Tag{Kind: KindCommit, Generation: 1, Step: 2}, Payload: AppendCommit(nil, Commit{Step: 2})}))
	f.Add(make([]byte, HeaderBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := decodeFrame(b, 1<<10)
		if err != nil {
			return
		}
		if again := appendFrame(nil, frame); !bytes.Equal(again, b) {
			t.Fatalf("%x decodes to %v, which encodes to %x", b, frame.Tag, again)
		}
	})
}

func FuzzDecodeOpen(f *testing.F) {
	f.Add(AppendOpen(nil, Open{Class: Gradients, Generation: 9, From: 3, To: 4}))
	f.Add(AppendOpen(nil, Open{Class: Chunks, From: 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, err := DecodeOpen(b); err == nil && !bytes.Equal(AppendOpen(nil, o), b) {
			t.Fatalf("%x decodes to %+v, which encodes otherwise", b, o)
		}
	})
}

func BenchmarkAppendHeader4MB(b *testing.B) {
	frame := Frame{Tag: sampleFrame().Tag, Payload: make([]byte, 4<<20)}
	b.SetBytes(4 << 20)
	var dst []byte
	for b.Loop() {
		dst = AppendHeader(dst[:0], frame)
	}
}
