package ingest

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/node/config"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

func TestRepeatsWarnsOfShortTexts(t *testing.T) {
	for _, c := range []struct {
		sizeBytes int64
		width     int
		want      string
	}{
		{1 << 20, 0, ""},
		{24_576, 0, ""}, // 50 times
		{24_500, 0, "through this text 50.2 times"},
		{652, 0, "through this text 1,885 times, and the model will learn it by heart; past 50 times it learns next to nothing. Give it more text with --data, or --steps 15"},
		{47_000, 2, "through this text 52.3 times"},
		{0, 0, ""},
	} {
		spec := plan.RunSpec{Model: model.Config{Context: 128}, Train: plan.TrainSpec{Steps: 600, Micros: 4, MicroBatch: 4}, Data: plan.DataSpec{SizeBytes: c.sizeBytes}}
		if c.width > 0 {
			spec.Data.Tokens = &plan.TokenSpec{WidthBytes: c.width}
		}
		if got := Repeats(spec); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%d bytes: %q, want %q", c.sizeBytes, got, c.want)
		}
	}
}

func TestPlannedRepeatsKnowsWhatIsNotPacked(t *testing.T) {
	dir := t.TempDir()
	text := []byte(strings.Repeat("some words\n", 100))
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"a.txt": text, "b.txt.gz": packed.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spec := plan.RunSpec{Model: model.Config{Context: 128}, Train: plan.TrainSpec{Steps: 600, Micros: 4, MicroBatch: 4}}
	for _, c := range []struct{ path, want string }{
		{"a.txt", "at least 1,175 times"}, // of 1101 bytes, less 5% that are held out
		{"b.txt.gz", ""},
		{"", ""},
		{"*", ""},
		{"missing", ""},
	} {
		cfg := config.Config{Data: []string{filepath.Join(dir, c.path)}}
		if c.path == "" {
			cfg.Data = nil
		}
		if got := PlannedRepeats(cfg, spec); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", c.path, got, c.want)
		}
	}
}
