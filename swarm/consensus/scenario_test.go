package consensus

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the expected parts of testdata")

// scenario is a file of testdata: blocks of command lines, then ----, then what they give.
// Lines that begin with # and blank lines between blocks are kept.
func scenario(t *testing.T, pattern string, open func(t *testing.T) func(line string) string) {
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(string(want), open(t))
			if *update {
				err = os.WriteFile(file, []byte(got), 0o644)
			} else if got != string(want) {
				t.Errorf("%s differs, is:\n%s", file, got)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// replay gives the scenario with what its commands give now.
func replay(text string, run func(line string) string) string {
	var b bytes.Buffer
	skipping := false
	var output []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "":
			skipping = false
			b.WriteString("\n")
		case skipping:
		case line == "----":
			b.WriteString("----\n" + strings.Join(output, ""))
			output, skipping = nil, true
		default:
			b.WriteString(line + "\n")
			if !strings.HasPrefix(line, "#") {
				output = append(output, run(line)+"\n")
			}
		}
	}
	return b.String()
}

// fields splits a command line into its words and its key=value pairs.
func fields(line string) (words []string, pairs map[string]string) {
	pairs = map[string]string{}
	for _, f := range strings.Fields(line) {
		if k, v, ok := strings.Cut(f, "="); ok {
			pairs[k] = v
		} else {
			words = append(words, f)
		}
	}
	return words, pairs
}

// list splits a comma-separated value; none for the empty one.
func list(v string) []string {
	if v == "" {
		return nil
	}
	return strings.Split(v, ",")
}
