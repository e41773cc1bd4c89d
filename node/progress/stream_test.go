package progress

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"pnode/node/infer"
)

// TestStreamShowsWholeCharacters however a text is cut into tokens.
func TestStreamShowsWholeCharacters(t *testing.T) {
	text := "aé€😀\x1b[2J\tने\u200c\u200d\u00a0\u3000\u202f\u00ad\u200f\r\nx\ry\u202e\u009b\r\rend\xff\xf0\x9f"
	want := "aé€😀\uFFFD[2J\tने\u200c\u200d\u00a0\u3000\u202f\u00ad\u200f\r\nx\uFFFDy\uFFFD\uFFFD\uFFFD\uFFFDend\uFFFD\uFFFD\uFFFD\n"
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		s := NewStream(&out, true)
		for rest := []byte(text); len(rest) > 0; {
			n := min(size, len(rest))
			if err := s.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			if shown := out.String(); !strings.HasPrefix(want, shown) {
				t.Fatalf("cut at %d: %q is shown", size, shown)
			}
			rest = rest[n:]
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("cut at %d: %q, want %q", size, out.String(), want)
		}
	}
}

// TestStreamLeavesAFileItsText: byte for byte, at once.
func TestStreamLeavesAFileItsText(t *testing.T) {
	text := "a\x1b[2J\r\n\u202e\xff\xf0\x9f"
	var out bytes.Buffer
	s := NewStream(&out, false)
	for i := range len(text) {
		if err := s.Write([]byte{text[i]}); err != nil || out.String() != text[:i+1] {
			t.Fatalf("%q is written, %v", out.String(), err)
		}
	}
	if err := s.Close(); err != nil || out.String() != text+"\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestStreamTellsOfABrokenPipe(t *testing.T) {
	s := NewStream(brokenWriter{}, true)
	if err := s.Write([]byte("a")); !errors.Is(err, errBroken) {
		t.Error(err)
	}
}

func TestBar(t *testing.T) {
	now := time.Unix(0, 0)
	for _, tt := range []struct {
		terminal bool
		want     string
	}{
		{true, "\r\x1b[Kfile: 25%, ETA 18 s\r\x1b[Kfile: 100%\r\x1b[K"},
		{false, ""},
	} {
		var out bytes.Buffer
		b := NewBar(&out, tt.terminal, "file", 400, func() time.Time { return now })
		now = now.Add(6 * time.Second)
		b.At(100)
		b.At(101) // too soon
		now = now.Add(2 * time.Second)
		b.At(400)
		b.Close()
		if got := out.String(); got != tt.want {
			t.Errorf("terminal %v: %q, want %q", tt.terminal, got, tt.want)
		}
	}
}

func TestLine(t *testing.T) {
	for terminal, want := range map[bool]string{true: "\r\x1b[Ka\r\x1b[K\r\x1b[Kb\r\x1b[Kc\r\x1b[Kd\r\x1b[K", false: "c\n"} {
		now := time.Unix(0, 0)
		var out bytes.Buffer
		l := NewLine(&out, terminal, func() time.Time { return now })
		l.Clear()
		l.At("a")
		l.Clear()
		now = now.Add(9 * time.Second)
		l.At("b")
		now = now.Add(time.Second)
		l.At("c")
		l.At("d")
		l.Clear()
		l.Clear()
		if got := out.String(); got != want {
			t.Errorf("terminal %v: %q, want %q", terminal, got, want)
		}
	}
}

func TestScores(t *testing.T) {
	var out bytes.Buffer
	err := Scores(&out, []FileScore{{"a.txt", infer.Score{Tokens: 100, Bytes: 200, Nats: 200}}, {"b.txt", infer.Score{Tokens: 100, Bytes: 100, Nats: 100}}})
	want := `FILE   TOKENS  PERPLEXITY  NATS/TOKEN  BITS/BYTE
a.txt  100     7.3891      2.000000    1.442695
b.txt  100     2.7183      1.000000    1.442695
all    200     4.4817      1.500000    1.442695
`
	if got := out.String(); err != nil || got != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}
