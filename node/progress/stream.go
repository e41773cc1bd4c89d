package progress

import (
	"io"
	"unicode/utf8"
)

// Stream shows text as it is generated: whole characters only, since a token may end within
// one, and nothing that a terminal would obey.
type Stream struct {
	w    io.Writer
	kept []byte // an unfinished character
}

// NewStream writes to w.
func NewStream(w io.Writer) *Stream { return &Stream{w: w} }

// Write shows all but an unfinished character at the end.
func (s *Stream) Write(part []byte) error {
	s.kept = append(s.kept, part...)
	whole := len(s.kept)
	for back := 1; back <= min(utf8.UTFMax-1, len(s.kept)); back++ {
		if start := len(s.kept) - back; utf8.RuneStart(s.kept[start]) {
			if !utf8.FullRune(s.kept[start:]) {
				whole = start
			}
			break
		}
	}
	return s.show(whole)
}

// Close shows what is left, and ends the line.
func (s *Stream) Close() error {
	s.kept = append(s.kept, '\n')
	return s.show(len(s.kept))
}

func (s *Stream) show(n int) error {
	if n == 0 {
		return nil
	}
	_, err := io.WriteString(s.w, clean(string(s.kept[:n])))
	s.kept = append(s.kept[:0], s.kept[n:]...)
	return err
}
