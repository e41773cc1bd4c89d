package schedule

import (
	"errors"
	"strings"
	"testing"
)

func TestSpecText(t *testing.T) {
	for _, text := range Kinds() {
		s, err := ParseSpec(text)
		if err != nil || s.Kind != text || s.String() != text {
			t.Errorf("%q parses as %+v, %v", text, s, err)
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
	k := kind{name: "test", params: []string{"v", "f"}}
	p, err := k.parseParam("f=8+4")
	if s := (Spec{Kind: "test", Params: []Param{{"v", []int{2}}, p}}); err != nil || s.String() != "test:v=2,f=8+4" || s.Int("v", 1) != 2 || s.Int("d", 7) != 7 {
		t.Fatalf("%v, %v", s, err)
	}
	for _, text := range []string{"f", "f=", "f=+", "f=08", "f=-1", "f=1+", "g=1", "f=1048577", "f=" + strings.Repeat("1+", maxSpecValues) + "1"} {
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
		{"1f1b", Group{Stages: 2, Shares: one}, ErrBadShape},
	} {
		if _, err := (Spec{Kind: c.kind}).Build(c.g); !errors.Is(err, c.want) {
			t.Errorf("%s of %+v: %v, want %v", c.kind, c.g, err, c.want)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	for _, text := range []string{"", "1f1b", "gpipe", "kfkb:k=3", "interleaved:v=2,f=8+4,b=6+6"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseSpec(text); err == nil && s.String() != text {
			t.Fatalf("%q prints as %q", text, s)
		}
	})
}
