package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"
)

// samplePiece is the front of the piece at offset of a message of n bytes.
func samplePiece(n int, seq uint64, offset int) []byte {
	f := Frame{Tag: sampleFrame().Tag, Payload: make([]byte, n)}
	return AppendPiece(nil, AppendHeader(nil, f), seq, offset)
}

func TestPieceRoundTrip(t *testing.T) {
	const n = 2*MaxPieceBytes + 5
	if got := Pieces(n); got != 3 {
		t.Fatalf("%d bytes are %d pieces", n, got)
	}
	for i, want := range []int{MaxPieceBytes, MaxPieceBytes, 5} {
		p, err := DecodePiece(samplePiece(n, 7, i*MaxPieceBytes), n)
		if err != nil || p.Seq != 7 || p.Offset != i*MaxPieceBytes || p.Bytes() != want || p.Header.PayloadBytes != n {
			t.Errorf("piece %d is %+v, %v", i, p, err)
		}
	}
	if p, err := DecodePiece(samplePiece(0, 1, 0), 0); err != nil || p.Bytes() != 0 || Pieces(0) != 1 {
		t.Errorf("an empty message: %+v, %v", p, err)
	}
}

func TestPieceRefusals(t *testing.T) {
	good := samplePiece(MaxPieceBytes+1, 3, 0)
	changed := func(at int, sum bool) []byte {
		b := bytes.Clone(good)
		b[at] ^= 1
		if sum {
			binary.LittleEndian.PutUint32(b[PieceBytes-4:], crc32.Checksum(b[:PieceBytes-4], castagnoli))
		}
		return b
	}
	heartbeat := AppendHeader(nil, Frame{Tag: Tag{Kind: Heartbeat, Generation: 1}})
	for name, tt := range map[string]struct {
		b    []byte
		want error
	}{
		"cut":                  {good[:PieceBytes-1], ErrLength},
		"trailing":             {append(bytes.Clone(good), 0), ErrLength},
		"magic":                {changed(0, true), ErrMagic},
		"changed number":       {changed(HeaderBytes, false), ErrChecksum},
		"offset inside":        {changed(HeaderBytes+8, true), ErrValue},
		"offset behind":        {samplePiece(MaxPieceBytes, 3, MaxPieceBytes), ErrValue},
		"no number":            {samplePiece(1, 0, 0), ErrValue},
		"a numbered heartbeat": {AppendPiece(nil, heartbeat, 1, 0), ErrValue},
		"too large":            {samplePiece(4*MaxPieceBytes, 3, 0), ErrLength},
	} {
		if _, err := DecodePiece(tt.b, 2*MaxPieceBytes); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
}

func TestAck(t *testing.T) {
	if n, err := DecodeAck(AppendAck(nil, 1<<40)); err != nil || n != 1<<40 {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := DecodeAck(make([]byte, AckBytes+1)); !errors.Is(err, ErrLength) {
		t.Errorf("one byte too many: %v", err)
	}
}

func FuzzDecodePiece(f *testing.F) {
	f.Add(samplePiece(100, 1, 0))
	f.Add(samplePiece(2*MaxPieceBytes, 9, MaxPieceBytes))
	f.Add(AppendPiece(nil, AppendHeader(nil, Frame{Tag: Tag{Kind: Heartbeat, Generation: 1}}), 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePiece(b, 4*MaxPieceBytes)
		if err != nil {
			return
		}
		if n := p.Bytes(); n < 0 || n > MaxPieceBytes || p.Offset+n > p.Header.PayloadBytes {
			t.Fatalf("%x is a piece of %d bytes at %d of %d", b, n, p.Offset, p.Header.PayloadBytes)
		}
		if again := AppendPiece(nil, b[:HeaderBytes], p.Seq, p.Offset); !bytes.Equal(again, b) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", b, p, again)
		}
	})
}
