package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestPrintedConfigLoadsBack(t *testing.T) {
	for name, c := range map[string]Config{"default": Default(), "odd": odd()} {
		var b strings.Builder
		if err := c.Print(&b); err != nil {
			t.Fatal(err)
		}
		got, err := Parse(name, []byte(b.String()))
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, b.String())
		}
		if !reflect.DeepEqual(got, c) {
			t.Errorf("%s:\n got %+v\nwant %+v\nfrom\n%s", name, got, c, b.String())
		}
	}
}

func TestMergeTakesGivenFlagsOnly(t *testing.T) {
	file, flags := Default(), Default()
	file.Steps, file.Seed, file.Data = 11, 12, []string{"from-file"}
	flags.Steps, flags.Seed, flags.LR = 600, 99, 0.5 // steps: given, and equal to the default
	given := map[string]bool{"steps": true, "lr": true}
	got := Merge(file, flags, func(key string) bool { return given[key] })
	want := file
	want.Steps, want.LR = 600, 0.5
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if file.Steps != 11 {
		t.Error("Merge changed its argument")
	}
}

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct{ content, want string }{
		{"seed: 3\nstpes: 1", `config: run.yaml line 2: unknown key "stpes": did you mean "steps"?`},
		{"data: [x]\n  steps: 4", `config: run.yaml line 2: indented too far: the line before it begins no list and no block`},
		{"data: [x]\nsteps: [", `config: run.yaml line 2: what opens here is not closed by ]`},
		{"colour: red", "config: run.yaml line 1: unknown key \"colour\": `pnode train --print-config` lists all keys"},
		{"xy: 1", "config: run.yaml line 1: unknown key \"xy\": `pnode train --print-config` lists all keys"},
		{"micro-batch: 3", `config: run.yaml line 1: unknown key "micro-batch": did you mean "micro_batch"?`},
		{"steps: 1\nsteps: 2", `config: run.yaml line 2: the key "steps" is in line 1 already: remove one of them`},
		{"steps: 1.5", `config: run.yaml line 1: steps: "1.5": want a whole number`},
		{"\nsteps: 99999999999999999999", `config: run.yaml line 2: steps: "99999999999999999999": want a whole number`},
		{"seed: -1", `config: run.yaml line 1: seed: "-1": want a whole number from 0 to 18446744073709551615`},
		{"lr: fast", `config: run.yaml line 1: lr: "fast": want a number`},
		{"lr: [1]", `config: run.yaml line 1: lr: want one value, not a list`},
		{"json: yes", `config: run.yaml line 1: json: "yes": want true or false`},
		{"replicas: 0", `config: run.yaml line 1: replicas: "0": want auto, or a number from 1`},
		{"data_limit: 1e9", `config: run.yaml line 1: data_limit: "1e9": want a size such as 500KB, 16MB or 2GiB`},
		{"steps:", `config: run.yaml line 1: steps: no value: give one or remove the key`},
		{"data: {a: b}", `config: run.yaml line 1: data: want one value, not keys of its own`},
		{"steps:\n  lr: 4", `config: run.yaml line 1: steps: want one value, not keys of its own`},
		{"data: *.txt", `config: run.yaml line 1: data: want a plain value: put one that begins with * in quotes`},
		{"data: [[a]]", `config: run.yaml line 1: data[0]: want one value, not a list`},
		{"- steps", "config: run.yaml line 1: want lines of the form `key: value`"},
		{"seed: 1\n---\nseed: 2", `config: run.yaml line 3: a second document: remove it and its ---`},
		{"data: [a", `config: run.yaml line 1: what opens here is not closed by ]`},
	} {
		_, err := Parse("run.yaml", []byte(tt.content))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%.40q:\n got %v\nwant %s", tt.content, err, tt.want)
		}
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%.40q: does not wrap ErrInvalid", tt.content)
		}
	}
}

func TestParseAccepts(t *testing.T) {
	for content, change := range map[string]func(*Config){
		"":                        func(*Config) {},
		"# nothing\n":             func(*Config) {},
		"data: one.txt":           func(c *Config) { c.Data = []string{"one.txt"} },
		"data: []":                func(*Config) {},
		"data: [1, 'b c']":        func(c *Config) { c.Data = []string{"1", "b c"} },
		"replicas: auto":          func(*Config) {},
		"stages: 3":               func(c *Config) { c.Stages = 3 },
		"data_limit: 2gib":        func(c *Config) { c.DataLimit = 2 << 30 },
		"data_limit: 12345":       func(c *Config) { c.DataLimit = 12345 },
		"lr: 1":                   func(c *Config) { c.LR = 1 },
		"seed: 5 # five\nkeep: 2": func(c *Config) { c.Seed, c.Keep = 5, 2 },
	} {
		want := Default()
		change(&want)
		got, err := Parse("run.yaml", []byte(content))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v\n got %+v\nwant %+v", content, err, got, want)
		}
	}
}

func TestLoadRefusesFiles(t *testing.T) {
	for path, want := range map[string]string{
		t.TempDir() + "/no.yaml":                         "no.yaml",
		write(t, strings.Repeat("#", maxFileBytes+1)):    "too large: over 1048576 bytes",
		write(t, strings.Repeat("#", maxFileBytes)+"\n"): "too large: over 1048576 bytes",
	} {
		if _, err := Load(path); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := Load(write(t, strings.Repeat("#", maxFileBytes))); err != nil {
		t.Error(err)
	}
}

// FuzzParse looks for content that panics or loads as something that does not survive
// Print.
func FuzzParse(f *testing.F) {
	var b strings.Builder
	if err := odd().Print(&b); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(b.String()))
	f.Add([]byte("data: [a, \"b\\u0085\", 'c\r\nd', |]\nlr: 1e-3"))
	f.Add([]byte("data:\n- >\n  folded\n  text\n- |+\n  kept\n\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		c, err := Parse("run.yaml", content)
		if err != nil {
			return
		}
		var b strings.Builder
		if err := c.Print(&b); err != nil {
			t.Fatal(err)
		}
		again, err := Parse("printed", []byte(b.String()))
		if err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
		if !reflect.DeepEqual(again, c) {
			t.Fatalf("got %+v\nwant %+v\nfrom\n%s", again, c, b.String())
		}
	})
}
