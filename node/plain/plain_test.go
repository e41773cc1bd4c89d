package plain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTextHasNoNamesOfPackages: wherever in a chain they begin an error, and nothing else.
func TestTextHasNoNamesOfPackages(t *testing.T) {
	full := errors.New("checkpoint: disk full")
	for want, err := range map[string]error{
		"disk full":                         full,
		"save: disk full":                   fmt.Errorf("node: checkpointer: save: %w", full),
		"save: disk full\nlost":             errors.Join(fmt.Errorf("save: %w", full), errors.New("replayer: lost")),
		"open node: checkpoint: is a file":  errors.New("open node: checkpoint: is a file"),
		"of d/wire: it is damaged":          fmt.Errorf("of %s: it is damaged", "d/wire"),
		"stage 2: put: no such file: cheap": fmt.Errorf("generation: stage 2: %w", errors.New("put: no such file: cheap")),
	} {
		if got := Text(err); got != want {
			t.Errorf("%q became %q, want %q", err, got, want)
		}
	}
}

// words lists packages whose names begin what people are told of their settings, too.
var words = []string{"gpu", "host", "image", "memory", "null", "sim", "trace"}

// TestPackagesAreAllThatNameThemselves: each package of the program whose errors begin with its name, but for words.
func TestPackagesAreAllThatNameThemselves(t *testing.T) {
	clause, named := regexp.MustCompile(`(?m)^package ([a-z]+)$`), regexp.MustCompile(`(?:errors\.New|fmt\.Errorf)\("([a-z]+): `)
	files, lacking := 0, map[string]bool{}
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		of := clause.FindSubmatch(source)
		for _, m := range named.FindAllSubmatch(source, -1) {
			if name := string(m[1]); of != nil && name == string(of[1]) && !slices.Contains(packages, name) && !slices.Contains(words, name) {
				lacking[name] = true
			}
		}
		return nil
	})
	if err != nil || files < 20 {
		t.Fatalf("looked at %d files: %v", files, err)
	}
	for name := range lacking {
		t.Errorf("%s is not in packages", name)
	}
}
