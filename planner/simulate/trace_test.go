package simulate

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func TestATraceIsRead(t *testing.T) {
	got, err := ParseTrace("# two machines\n0,add,a\n\n5, add , b\r\n10,notice,a\n30,remove,a\n30,add,a\n")
	want := []Event{{0, Add, "a"}, {5 * milli, Add, "b"}, {10 * milli, Notice, "a"}, {30 * milli, Remove, "a"}, {30 * milli, Add, "a"}}
	if err != nil || !reflect.DeepEqual(got.Events, want) || got.EndNanos != 30*milli || got.Most() != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestBadTracesAreTold(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "no event",
		"# none\n":                         "no event",
		"0,add":                            "line 1: \"0,add\": want three fields",
		"0,add,a,b":                        "want three fields",
		"0,add,a\nsoon,add,b":              "line 2: time \"soon\": want whole milliseconds",
		"-1,add,a":                         "time \"-1\"",
		"99999999999999,add,a":             "time \"99999999999999\"",
		"0,boot,a":                         "event \"boot\": want add, notice or remove",
		"0,add,":                           "name \"\"",
		"0,add,a\x07":                      "name ",
		"0,add," + strings.Repeat("a", 65): "want 1 to 64",
		"5,add,a\n4,add,b":                 "line 2: time 4 is before 5",
		"0,add,a\n0,add,a":                 "add of \"a\", which is there already",
		"0,remove,a":                       "\"a\" is not there",
		"0,add,a\n1,remove,a\n2,notice,a":  "line 3: \"a\" is not there",
	} {
		if _, err := ParseTrace(text); !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	many := strings.Builder{}
	for i := range MaxMachines + 1 {
		many.WriteString("0,add,n" + strings.Repeat("i", i%40) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676)) + "\n")
	}
	if _, err := ParseTrace(many.String()); !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), "more than 4096 machines") {
		t.Errorf("%v", err)
	}
	if _, err := ParseTrace(strings.Repeat("#", MaxTraceBytes+1)); !errors.Is(err, ErrTrace) {
		t.Errorf("%v", err)
	}
}

// FuzzParseTrace holds what a reader may rely on: order, and that machines come before they go.
func FuzzParseTrace(f *testing.F) {
	f.Add("0,add,a\n5,notice,a\n9,remove,a\n")
	f.Add("#\n0,add,a\r\n0,add,b\n1,remove,b\n1,add,b\n")
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := ParseTrace(text)
		if err != nil {
			if !errors.Is(err, ErrTrace) {
				t.Fatal(err)
			}
			return
		}
		for _, tr := range []Trace{trace, trace.Noticed(7 * milli)} {
			living, last := map[string]bool{}, int64(0)
			for _, e := range tr.Events {
				if e.AtNanos < last || e.AtNanos > tr.EndNanos || (e.Kind == Add) == living[e.Node] {
					t.Fatalf("%+v of %+v", e, tr)
				}
				last = e.AtNanos
				living[e.Node] = e.Kind != Remove
			}
		}
	})
}

func TestEveryRemovalGetsOneNotice(t *testing.T) {
	trace, err := ParseTrace("0,add,a\n0,add,b\n100,notice,b\n200,remove,a\n200,remove,b\n210,add,a\n215,remove,a\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []Event{{0, Add, "a"}, {0, Add, "b"}, {100 * milli, Notice, "b"}, {150 * milli, Notice, "a"}, {200 * milli, Remove, "a"}, {200 * milli, Remove, "b"}, {210 * milli, Add, "a"}, {210 * milli, Notice, "a"}, {215 * milli, Remove, "a"}}
	if got := trace.Noticed(50 * milli); !reflect.DeepEqual(got.Events, want) {
		t.Errorf("%+v", got.Events)
	}
}

// TestSyntheticTraces: the same seed makes the same trace, and times between losses have the mean that was asked for.
func TestSyntheticTraces(t *testing.T) {
	s := Synthetic{Nodes: 50, SpanNanos: 100 * 3600 * second, EveryNanos: 600 * second, BackNanos: 300 * second, Seed: 7}
	a, err := s.Trace()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := s.Trace(); err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("another trace for the same seed: %v", err)
	}
	s.Seed++
	if b, err := s.Trace(); err != nil || reflect.DeepEqual(a, b) {
		t.Errorf("the same trace for another seed: %v", err)
	}
	losses, living := 0, map[string]bool{}
	for _, e := range a.Events {
		if e.Kind == Remove {
			losses++
		}
		if (e.Kind == Add) == living[e.Node] {
			t.Fatalf("%+v", e)
		}
		living[e.Node] = e.Kind == Add
	}
	if losses < 540 || losses > 660 || a.Most() > 50 { // 600, and four deviations are 98
		t.Errorf("%d losses, %d machines", losses, a.Most())
	}
	for _, bad := range []Synthetic{{}, {Nodes: 1}, {Nodes: 1, SpanNanos: second}, {Nodes: MaxMachines + 1, SpanNanos: second, EveryNanos: second}, {Nodes: 1, SpanNanos: 1e6 * second, EveryNanos: milli}} {
		if _, err := bad.Trace(); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestExponentialTimesAreTheSameEverywhere: times that follow from a seed are integers, by integer operations alone.
func TestExponentialTimesAreTheSameEverywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var got []int64
	for range 4 {
		got = append(got, exponential(rng, 1_000_000))
	}
	if want := []int64{262179, 483800, 242800, 227406}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	sum := int64(0)
	for range 100_000 {
		sum += exponential(rng, 1_000_000)
	}
	if mean := sum / 100_000; mean < 987_000 || mean > 1_013_000 { // four deviations
		t.Errorf("mean %d", mean)
	}
}
