package draw

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/pipeline/schedule"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const ms = schedule.Nanos(1_000_000)

// line is 1F1B of four stages on links of 2 ms.
func line(t *testing.T) schedule.Timeline {
	t.Helper()
	s, err := schedule.Depth(schedule.Shape{Stages: 4, Micros: 12}, 1)
	if err != nil {
		t.Fatal(err)
	}
	costs := schedule.Costs{Stages: make([]schedule.StageTime, 4), Boundaries: make([]schedule.Boundary, 3)}
	for i := range costs.Stages {
		costs.Stages[i] = schedule.StageTime{Forward: ms, Input: ms, Weight: ms, Update: ms, Reduce: ms / 2}
	}
	for i := range costs.Boundaries {
		hop := schedule.Hop{Transfer: ms / 2, Latency: 3 * ms / 2}
		costs.Boundaries[i] = schedule.Boundary{Activation: hop, Gradient: hop}
	}
	out, err := schedule.Simulate(schedule.WithReduceAndStep(schedule.WithCommunication(s)), schedule.Timing{Replicas: []schedule.Costs{costs}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSVGGolden(t *testing.T) {
	var b bytes.Buffer
	measured := line(t)
	err := SVG(&b, Panel{Title: "predicted", Notes: []string{"1F1B <4 stages>"}, Line: measured},
		Panel{Title: "measured", Names: []string{"a & b"}, Line: schedule.Timeline{Makespan: 80 * ms, Workers: measured.Workers[:2]}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "1f1b.svg")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != strings.ReplaceAll(string(want), "\r\n", "\n") {
		t.Errorf("%s differs (rewrite with -update)", path)
	}
}

// TestSVGShowsEverything counts bars, arrows and shades, and wants well-formed XML.
func TestSVGShowsEverything(t *testing.T) {
	var b bytes.Buffer
	l := line(t)
	if err := SVG(&b, Panel{Line: l}); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	d := xml.NewDecoder(&b)
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if a.Name.Local == "class" {
					counts[a.Value]++
				}
			}
		}
	}
	exposed := 0
	for _, row := range l.Waits() {
		for _, w := range row {
			if w.End > w.Exposed {
				exposed++
			}
		}
	}
	for class, want := range map[string]int{
		"bar f0": 48, "bar b0": 48, "bar o0": 8,
		"activation": 36 + 1, "gradient": 36 + 1, "exposed": exposed + 1, // and the legend
		"name": 4, "figures": 4,
	} {
		if counts[class] != want {
			t.Errorf("%d of %q, want %d", counts[class], class, want)
		}
	}
	if counts["micro"] < 96 {
		t.Errorf("%d bars have a label", counts["micro"])
	}
}

// TestEmptyTimelines draws what has no actions or no time.
func TestEmptyTimelines(t *testing.T) {
	for _, l := range []schedule.Timeline{{}, {Workers: make([][]schedule.Span, 2)}, {Workers: [][]schedule.Span{{{}}}}} {
		if err := SVG(io.Discard, Panel{Line: l}); err != nil {
			t.Error(err)
		}
	}
	if err := SVG(io.Discard); err != nil {
		t.Error(err)
	}
	huge := schedule.Timeline{Workers: [][]schedule.Span{make([]schedule.Span, MaxSpans+1)}}
	if err := SVG(io.Discard, Panel{Line: huge}); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		end, tick, unit schedule.Nanos
	}{{1, 1, 1}, {50 * ms, 5 * ms, ms}, {99 * ms, 10 * ms, ms}, {3000 * ms, 500 * ms, 1000 * ms}, {1999, 200, 1}, {20000, 2000, 1000}} {
		tick, unit, _ := ticks(c.end, 10)
		if tick != c.tick || unit != c.unit {
			t.Errorf("to %d: ticks of %d in units of %d, want %d and %d", c.end, tick, unit, c.tick, c.unit)
		}
	}
}
