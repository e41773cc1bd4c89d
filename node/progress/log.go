package progress

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// Log returns the handler of a node's log. At level info and below it writes lines for developers, in the text form of log/slog. Above, as
// users have it, each record is a sentence among those about the run: "warning: MESSAGE: CAUSE (KEY VALUE, ...)".
func (w *Writer) Log(level slog.Level) slog.Handler {
	if level < slog.LevelWarn {
		return slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})
	}
	return sentences{to: w, level: level}
}

// sentences is a slog.Handler for people.
type sentences struct {
	to    *Writer
	level slog.Level
	attrs []slog.Attr
}

func (s sentences) Enabled(_ context.Context, level slog.Level) bool { return level >= s.level }

func (s sentences) Handle(_ context.Context, r slog.Record) error {
	attrs := append([]slog.Attr(nil), s.attrs...)
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	word := "warning: "
	if r.Level >= slog.LevelError {
		word = "error: "
	}
	s.to.Notice(word + sentenceOf(r.Message, attrs))
	return nil
}

func (s sentences) WithAttrs(attrs []slog.Attr) slog.Handler {
	s.attrs = append(append([]slog.Attr(nil), s.attrs...), attrs...)
	return s
}

// WithGroup returns s: nothing here has groups, and a sentence has no place for one.
func (s sentences) WithGroup(string) slog.Handler { return s }

// sentenceOf puts a record's cause after its message, and what else it has in parentheses.
func sentenceOf(message string, attrs []slog.Attr) string {
	text, facts := message, []string(nil)
	for _, a := range attrs {
		value := strings.Join(strings.Fields(a.Value.Resolve().String()), " ")
		switch a.Key {
		case "cause", "err", "why", "reason":
			text += ": " + value
		default:
			facts = append(facts, a.Key+" "+value)
		}
	}
	if len(facts) > 0 {
		text += fmt.Sprintf(" (%s)", strings.Join(facts, ", "))
	}
	return text
}
