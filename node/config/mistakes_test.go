package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMistakesAreNamedByTheirLine: what the library says of these names another line, or no remedy.
func TestMistakesAreNamedByTheirLine(t *testing.T) {
	for _, tt := range []struct{ content, want string }{
		{"steps: 4\n  seed: 2\n", "line 2: indented too far"},
		{"steps: 4\r\n  seed: 2\r\n", "line 2: indented too far"},
		{"# mine\n\nsteps: 4 # few\nseed: 2\n   lr: 0.1\nmicros: 3\n", "line 5: indented too far"},
		{"steps: 4\n\tseed: 2\n", "line 2: it begins with a tab: indent by blanks"},
		{"\tsteps: 4\n", "line 1: it begins with a tab"},
		{"steps: 4\nseed 2\nlr: 0.1\n", "line 2: no colon: want lines of the form `key: value`"},
		{"seed 2\nlr: 0.1\n", "line 1: no colon"},
		{"steps:4\nlr: 0.1\n", "line 1: no blank after the colon: want `steps: 4`"},
		{"steps: 4\nlr: 0.1\nsteps: 5\n", `line 3: the key "steps" is in line 1 already`},
		{"dir: \"abc\nsteps: 4\n", `line 1: what opens here is not closed by "`},
		{"steps: 4\ndata: [a, b\nseed: 4\n", "line 2: what opens here is not closed by ]"},
		{"data: {a\n", "line 1: what opens here is not closed by }"},
		{"name: %abc\n", "line 1: no value begins with %: put it in quotes"},
		{"name: @abc\n", "line 1: no value begins with @"},
		{"name: a: b\n", "line 1: a second colon: put the value in quotes"},
		{"  steps: 4\nlr: 0.1\n", "line 2: indented by 0: the lines that it follows are indented by 2"},
		{"dir: \"C:\\Users\\x\"\n", `line 1: \U is no escape in double quotes: use single ones`},
		{"name: \"a\\é\"\n", `line 1: \é is no escape in double quotes: use single ones`},
		{"name: \"a\" \"b\"\n", `line 1: text follows the closing ": put quotes around all of the value`},
		{"name: 'it''s' mine\nsteps: 4\n", "line 1: text follows the closing '"},
		{"data: [a,\n  b] c\n", "line 2: text follows the closing ]"},
		{"data: [\"a\" \"b\"]\nsteps: 4\n", "line 1: no comma between two elements of a list: want [a, b]"},
		{"name: -\n", "line 1: a list begins on the line below its key"},
		{"steps: 4\ndata: - a\n", "line 2: a list begins on the line below its key"},
		{"data:\n  - a\n - b\n", "line 3: indented by 1: the lines that it follows are indented by 0 and 2"},
	} {
		if _, err := Parse("run.yaml", []byte(tt.content)); err == nil || !strings.Contains(err.Error(), "run.yaml "+tt.want) {
			t.Errorf("%q:\n got %v\nwant %s", tt.content, err, tt.want)
		}
	}
	const device = "- {matmul: 1GFLOP/s, bandwidth: 1GB/s, memory: 1GB}\n"
	for _, tt := range []struct{ content, want string }{
		{"devices:\n" + device + " " + device, "line 3: indented too far"},
		{"devices:\n- matmul: 1GFLOP/s\n  bandwidth: 1GB/s\n   memory: 1GB\n", "line 4: indented too far"},
		{"devices:\n  - matmul: 1GFLOP/s\n    matmul: 2GFLOP/s\n", `line 3: the key "matmul" is in line 2 already`},
		{"devices:\n  - matmul 1GFLOP/s\n    memory: 1GB\n", "line 3: indented too far"},
		{"devices:\n  - {model: \"T4\" matmul: 1GFLOP/s}\n", "line 2: no comma between two entries: want {key: value, key: value}"},
	} {
		if _, err := LoadCluster(write(t, tt.content)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q:\n got %v\nwant %s", tt.content, err, tt.want)
		}
	}
}

// TestGoodFilesHaveNoMistakes: what is found in a file is a mistake for the library, too.
func TestGoodFilesHaveNoMistakes(t *testing.T) {
	examples, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("examples %v, error %v", examples, err)
	}
	for _, path := range examples {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if line, what := findMistake(string(content)); line > 0 {
			t.Errorf("%s line %d: %s", path, line, what)
		}
	}
	for _, content := range []string{
		"\ufeffsteps: 4\n",
		"data:\n- a\n- b\nsteps: 4\n",
		"data:\n  - 'it''s: here'\n  - \"a\\\\b: \\u0041\" # two\n  - c:/d\n",
		"name: [a,\n  b]\nsteps: 4",
		"data:\n- 'it''s' # mine\n- ''\n- \"\"\n- '''' \n- [a, ['b']]\n",
		"name: '-'\ndir: -a\n",
		"name: 'a\n  ''b'' c'\n",
		"dir: a\n  b\nsteps: 4\n",
		"steps:\n  4\nseed: 2\n",
		"name: |\n  a: b: c\n  @d\nsteps: 4\n",
		"{\"steps\": 4, \"data\": [\"a # b\"]} # JSON\n",
		"\"steps\": 4\n'seed' : 2\n",
		"---\nsteps: 4\n...\n",
	} {
		if line, what := findMistake(content); line > 0 {
			t.Errorf("%q line %d: %s", content, line, what)
		}
	}
}

// FuzzMistakes has any file taken, with a line that it has.
func FuzzMistakes(f *testing.F) {
	f.Add("steps: 4\n  - \"a\\")
	f.Add("- - - a: [{'\n#")
	f.Fuzz(func(t *testing.T, content string) {
		if line, what := findMistake(content); line < 0 || line > strings.Count(content, "\n")+1 || (line > 0) != (what != "") {
			t.Errorf("%q: line %d: %q", content, line, what)
		}
	})
}
