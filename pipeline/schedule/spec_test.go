package schedule

import (
	"errors"
	"strings"
	"testing"
)

func TestSpecText(t *testing.T) {
	for _, k := range Kinds() {
		s, err := ParseSpec(k.Name)
		if k.NeedsCosts {
			if !errors.Is(err, ErrBadSpec) {
				t.Errorf("%s has a name: %v", k.Name, err)
			}
			continue
		}
		if err != nil || s.Kind != k.Name || s.String() != k.Name {
			t.Errorf("%q parses as %+v, %v", k.Name, s, err)
		}
	}
	for _, text := range []string{"", "magic", "gpipe:", "gpipe:k", "gpipe:k=3", "gpipe ", "1f1b:k=", strings.Repeat("g", MaxSpecBytes+1)} {
		if s, err := ParseSpec(text); !errors.Is(err, ErrBadSpec) {
			t.Errorf("%.40q parses as %+v, %v", text, s, err)
		}
	}
}

// TestSpecParams reads parameters with a kind of the test's own.
func TestSpecParams(t *testing.T) {
	k := Kind{Name: "test", Params: []string{"v", "f"}}
	p, err := k.parseParam("f=8+4")
	if s := (Spec{Kind: "test", Params: []Param{{Name: "v", Values: []int{2}}, p}}); err != nil || s.String() != "test:v=2,f=8+4" {
		t.Fatalf("%v, %v", s, err)
	}
	for _, text := range []string{"f", "f=", "f=+", "f=08", "f=-1", "f=1+", "g=1", "f=1048577", "f=0", "v=1+2", "f=" + strings.Repeat("1+", maxSpecValues) + "1"} {
		if p, err := k.parseParam(text); !errors.Is(err, ErrBadSpec) {
			t.Errorf("%.40q parses as %+v, %v", text, p, err)
		}
	}
	if !k.ordered([]Param{{Name: "f"}}) || k.ordered([]Param{{Name: "f"}, {Name: "v"}}) || k.ordered([]Param{{Name: "f"}, {Name: "f"}}) {
		t.Error("the order of parameters is not kept")
	}
}

func TestBuildRefusesWhatDoesNotFit(t *testing.T) {
	one := []Share{{Micros: 4}}
	if s, err := (Spec{Kind: "gpipe"}).Build(Group{Stages: 2, Shares: one}); err != nil || s.Holder(0, 1) != 1 || s.Holder(0, 2) != -1 {
		t.Fatalf("%v, %v", s, err)
	}
	for _, c := range []struct {
		kind string
		g    Group
		want error
	}{
		{"magic", Group{Stages: 2, Shares: one}, ErrBadSpec},
		{"gpipe", Group{Stages: 2}, ErrBadShape},
		{"gpipe", Group{Shares: one}, ErrBadShape},
		{"1f1b", Group{Stages: 2, Shares: one, Warmups: []int{0}}, ErrBadShape},
		{"elastic", Group{Stages: 2, Shares: one}, ErrBadSpec},
		{"chimera", Group{Stages: 2, Shares: one}, ErrBadShape},
		{"chimera", Group{Stages: 2, Shares: []Share{{Micros: 4}, {First: 4}}}, ErrBadShape},
	} {
		if _, err := (Spec{Kind: c.kind}).Build(c.g); !errors.Is(err, c.want) {
			t.Errorf("%s of %+v: %v, want %v", c.kind, c.g, err, c.want)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, text := range []string{"", "1f1b", "gpipe", "kfkb:k=3", "interleaved:v=2,f=8+4,b=6+6", "chimera:pairs=2", "seq1f1b:n=4"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseSpec(text); err == nil && s.String() != text {
			t.Fatalf("%q prints as %q", text, s)
		}
	})
}

// TestSpecsBuildWhatOptionsMake goes from options to a name to actions.
func TestSpecsBuildWhatOptionsMake(t *testing.T) {
	o := Options{Shape: Shape{Replica: 3, Stages: 8, FirstMicro: 5, Micros: 12}, Chunks: 2, Depth: 2, Group: 6, Pairs: 2, Segments: 3}
	for _, k := range Kinds() {
		if k.NeedsCosts {
			continue
		}
		want, err := k.Make(o)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := ParseSpec(k.Spec(o).String())
		if err != nil {
			t.Fatal(err)
		}
		g := Group{First: 3, Stages: 8}
		n := k.Replicas(o)
		for i := range n {
			g.Shares = append(g.Shares, Share{First: Micro(5 + i*12/n), Micros: 12 / n})
		}
		if got, err := spec.Build(g); err != nil || got.String() != want.String() {
			t.Errorf("%s builds %v, %v, want\n%v", spec, got, err, want)
		}
		if spec.Replicas() != n || spec.Chunks() != k.StagesPerWorker(o) || 8/spec.Chunks() != len(want.Workers) {
			t.Errorf("%s: %d replicas, %d chunks", spec, spec.Replicas(), spec.Chunks())
		}
	}
}

func TestSpecOfGroups(t *testing.T) {
	k, _ := KindNamed("interleaved")
	if got := k.Spec(Options{Chunks: 2, Forward: []int{8, 4}, Backward: []int{6, 6}}).String(); got != "interleaved:v=2,f=8+4,b=6+6" {
		t.Error(got)
	}
}
