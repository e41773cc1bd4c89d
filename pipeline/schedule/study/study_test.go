package study

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pnode/pipeline/schedule"
)

const ms = Nanos(1_000_000)

// request is 4 stages of 1 + 2 ms and 64 micro-batches over links like those of the
// elastic schedule's golden figure.
func request(kind string) Request {
	return Request{
		Kind: kind, Options: schedule.Options{Shape: schedule.Shape{Stages: 4, Micros: 64}},
		Forward: []Nanos{ms}, Backward: []Nanos{2 * ms},
		Links: []schedule.Hop{{}, {Transfer: 2 * ms, Latency: 4 * ms}, {}},
	}
}

func TestElasticGolden(t *testing.T) {
	s, err := Run(request("elastic"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Makespan != 213*ms || s.Period != 3*ms || s.Floor != 3*ms || s.Spec != "1f1b" || s.Workers[0].Live != 8 {
		t.Errorf("%+v, want a makespan of 213 ms and a period of 3 ms", s)
	}
	plain, err := Run(request("1f1b"))
	if err != nil || plain.Makespan != 585*ms {
		t.Errorf("1F1B takes %d, %v, want 585 ms", plain.Makespan, err)
	}
	if plain.Period <= plain.Floor || !strings.Contains(plain.Bound, "between workers 1 and 2") {
		t.Errorf("1F1B has period %d and is bound by: %s", plain.Period, plain.Bound)
	}
	capped := request("elastic")
	capped.Caps = []int{4, 3, 2, 1}
	if s, err := Run(capped); err != nil || s.Makespan >= 585*ms || s.Workers[0].Live != 4 {
		t.Errorf("with the memory of 1F1B: %+v, %v", s, err)
	}
}

// TestPeriodIsNotBelowItsFloor: a kind that searches may find relatively more in three times the micro-batches than in twice.
func TestPeriodIsNotBelowItsFloor(t *testing.T) {
	for _, k := range schedule.Kinds() {
		r := request(k.Name)
		r.Options.Micros, r.Links = 4, []schedule.Hop{{Transfer: ms, Latency: 2 * ms}}
		if s, err := Run(r); err != nil || s.Period != 0 && s.Period < s.Floor {
			t.Errorf("%s: period %d, at least %d, %v", k.Name, s.Period, s.Floor, err)
		}
	}
}

// TestChimeraGoesOverLinksInReverse has a slow link at one end: the up pipeline's last
// boundary is over it.
func TestChimeraGoesOverLinksInReverse(t *testing.T) {
	r := request("chimera")
	r.Options.Micros = 2
	r.Links = []schedule.Hop{{Latency: 100 * ms}, {}, {}}
	s, err := Run(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range s.timeline.Messages {
		slow := m.Arrived-m.Queued >= 100*ms
		if first := m.From+m.To == 1; slow != first {
			t.Errorf("message %v from worker %d to %d takes %d", m.Action, m.From, m.To, m.Arrived-m.Queued)
		}
	}
	r.Options.Pairs, r.Options.Micros = 2, 4
	if _, err := Run(r); !errors.Is(err, ErrBadRequest) || !strings.Contains(err.Error(), "one value for all") {
		t.Error(err)
	}
}

// TestEveryKindReports runs all kinds with recomputation, updates and jitter.
func TestEveryKindReports(t *testing.T) {
	for _, k := range schedule.Kinds() {
		r := request(k.Name)
		r.Options.Stages, r.Options.Micros = 8, 12
		r.Links, r.Recompute, r.Update = []schedule.Hop{{Transfer: ms, Latency: ms}}, []Nanos{ms, ms, 0, 0, 0, 0, 0, 0}, []Nanos{ms}
		r.Jitter = schedule.Jitter{Seed: 1, Mean: ms / 10}
		s, err := Run(r)
		if err != nil {
			t.Fatalf("%s: %v", k.Name, err)
		}
		var text, picture, object bytes.Buffer
		if err := errors.Join(s.Text(&text), s.SVG(&picture), s.JSON(&object)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), "makespan") || !strings.HasPrefix(picture.String(), "<svg") {
			t.Errorf("%s reports %.200s", k.Name, text.String())
		}
		var back Study
		if err := json.Unmarshal(object.Bytes(), &back); err != nil || back.Makespan != s.Makespan || back.Bound == "" {
			t.Errorf("%s: %s, %v", k.Name, object.String(), err)
		}
		program := back.Program
		if strings.HasPrefix(program, "segments ") {
			_, program, _ = strings.Cut(program, "\n")
		}
		for word := range strings.FieldsSeq(program) {
			if _, err := schedule.ParseAction(word); err != nil {
				t.Errorf("%s: %v", k.Name, err)
			}
		}
		if workers := strings.Count(program, " STEP\n"); workers == 0 || workers != strings.Count(program, "\n") {
			t.Errorf("%s: %d workers end with a step:\n%.200s", k.Name, workers, program)
		}
	}
}

func TestRequestsAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Request){
		`--kind is "fast"`:                   func(r *Request) { r.Kind = "fast" },
		`--kind is "kfkb:g=1"`:               func(r *Request) { r.Kind = "kfkb:g=1" },
		`--stages is "0"`:                    func(r *Request) { r.Options.Stages = 0 },
		`--stages is "257"`:                  func(r *Request) { r.Options.Stages = 257 },
		`--micro is "-1"`:                    func(r *Request) { r.Options.Micros = -1 },
		`--segments is "100"`:                func(r *Request) { r.Options.Segments = 100 },
		`a multiple of 3`:                    func(r *Request) { r.Kind, r.Options.Chunks = "interleaved", 3 },
		`--forward has 2 values: want one`:   func(r *Request) { r.Forward = make([]Nanos, 2) },
		`--link has 2 values: want one`:      func(r *Request) { r.Links = r.Links[:2] },
		`--cap has 3 values: want one, or 4`: func(r *Request) { r.Caps = []int{9, 9, 9} },
		`may keep 0 activations`:             func(r *Request) { r.Caps = []int{0} },
		`at most 2 fit`:                      func(r *Request) { r.Kind, r.Caps = "gpipe", []int{2} },
		`--weight is longer`:                 func(r *Request) { r.Weight = []Nanos{3 * ms} },
		`waits for ever`:                     func(r *Request) { r.Kind, r.Options.Stages, r.Links = "interleaved:v=2,k=2", 8, nil },
		`jitter of mean`:                     func(r *Request) { r.Jitter.Mean = -1 },
	} {
		r := request("elastic")
		change(&r)
		if _, err := Run(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestTimesAndHops(t *testing.T) {
	times, err := Times("--forward", []string{"1", "0.25", "250us", " 2s", "0"})
	if err != nil || len(times) != 5 || times[0] != ms || times[1] != ms/4 || times[2] != ms/4 || times[3] != 2000*ms || times[4] != 0 {
		t.Errorf("%v, %v", times, err)
	}
	hops, err := Hops("--link", []string{"2:4", "1ms:40ms", "3"})
	if err != nil || hops[0] != (schedule.Hop{Transfer: 2 * ms, Latency: 4 * ms}) || hops[1].Latency != 40*ms || hops[2] != (schedule.Hop{Transfer: 3 * ms}) {
		t.Errorf("%v, %v", hops, err)
	}
	for _, word := range []string{"", "-1", "x", "1:", ":", "1:2:3", "2h", "NaN", "Inf", "1e99"} {
		if _, err := Hops("--link", []string{word}); !errors.Is(err, ErrBadRequest) || !strings.Contains(err.Error(), "--link") {
			t.Errorf("%q: %v", word, err)
		}
	}
}

func TestList(t *testing.T) {
	var text, array bytes.Buffer
	if err := errors.Join(List(&text), ListJSON(&array)); err != nil {
		t.Fatal(err)
	}
	var kinds []map[string]any
	if err := json.Unmarshal(array.Bytes(), &kinds); err != nil || len(kinds) != len(schedule.Kinds()) {
		t.Errorf("%v, %v", kinds, err)
	}
	for _, k := range schedule.Kinds() {
		if !strings.Contains(text.String(), k.Name+": "+k.Title) || k.Memory == "" || k.Bubble == "" || k.Source == "" {
			t.Errorf("%s is not explained", k.Name)
		}
	}
}
