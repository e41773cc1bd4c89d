package progress

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
)

// TestLogIsSentences: users read warnings as sentences, without what a terminal would obey; developers get slog's text form.
func TestLogIsSentences(t *testing.T) {
	for _, c := range []struct {
		level slog.Level
		want  string
	}{
		{slog.LevelWarn, "warning: the disk is slow: disk full (peer bee, takes 3 s)\nerror: no device is left: lost�[2J\n"},
		{slog.LevelError, "error: no device is left: lost�[2J\n"},
	} {
		var text bytes.Buffer
		all := slog.New(New(Options{Text: &text}).Log(c.level))
		log := all.With("peer", "bee")
		log.Info("not for people")
		log.Warn("the disk is slow", "cause", errors.New("disk\n full"), "takes", "3 s")
		all.Error("no device is left", "cause", "lost\x1b[2J")
		if got := text.String(); got != c.want {
			t.Errorf("%v:\n%s\nwant\n%s", c.level, got, c.want)
		}
	}
	var text bytes.Buffer
	slog.New(New(Options{Text: &text}).Log(slog.LevelInfo)).Info("for developers", "step", 3)
	if got := text.String(); !bytes.Contains(text.Bytes(), []byte(`level=INFO msg="for developers" step=3`)) {
		t.Errorf("at info: %s", got)
	}
}
