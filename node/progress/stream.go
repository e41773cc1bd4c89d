package progress

import (
	"io"
	"unicode/utf8"
)

// Stream shows text as it is generated. A terminal gets whole characters only, since a token may
// end within one, and nothing that it would obey. A file or pipe gets the text unchanged.
type Stream struct {
	w        io.Writer
	terminal bool
	kept     []byte // an unfinished character or end of line
}

// NewStream writes to w, which may be a terminal.
func NewStream(w io.Writer, terminal bool) *Stream { return &Stream{w: w, terminal: terminal} }

// Write shows all but an unfinished character or end of line at the end.
func (s *Stream) Write(part []byte) error {
	s.kept = append(s.kept, part...)
	if !s.terminal {
		return s.show(len(s.kept))
	}
	whole := len(s.kept)
	for back := 1; back <= min(utf8.UTFMax-1, len(s.kept)); back++ {
		if start := len(s.kept) - back; utf8.RuneStart(s.kept[start]) {
			if !utf8.FullRune(s.kept[start:]) {
				whole = start
			}
			break
		}
	}
	if whole > 0 && s.kept[whole-1] == '\r' {
		whole--
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
	text := string(s.kept[:n])
	if s.terminal {
		text = clean(text)
	}
	_, err := io.WriteString(s.w, text)
	s.kept = append(s.kept[:0], s.kept[n:]...)
	return err
}
