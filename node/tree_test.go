package node

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTreeIsTrue compares the annotated tree in docs/architecture.md with the folders of packages: each has a
// line with a few words, and nothing else has.
func TestTreeIsTrue(t *testing.T) {
	packages := map[string]bool{} // with the folders above them
	leaves := map[string]bool{}
	eachGoFile(t, func(file string) {
		dir := path.Dir(file)
		if strings.Contains(dir, "testdata") {
			return
		}
		leaves[dir] = true
		for ; dir != "."; dir = path.Dir(dir) {
			packages[dir] = true
		}
	})
	drawn := readTree(t, filepath.Join("..", "docs", "architecture.md"))
	for _, dir := range slices.Sorted(maps.Keys(leaves)) {
		if drawn[dir] == "" {
			t.Errorf("docs/architecture.md: the tree lacks %s/, or says nothing about it", dir)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(drawn)) {
		if !packages[dir] {
			t.Errorf("docs/architecture.md: the tree has %s/, which holds no package", dir)
		}
	}
}

// readTree returns what the first code block after the heading "## Tree" says of each folder. Two blanks
// of indentation are one level.
func readTree(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n## Tree\n")
	_, rest, opened := strings.Cut(rest, "```\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !opened || !closed {
		t.Fatalf("%s: no code block after ## Tree", file)
	}
	tree := map[string]string{}
	var above []string // the folder of each level
	for line := range strings.Lines(block) {
		bare := strings.TrimLeft(line, " ")
		level := (len(line) - len(bare)) / 2
		name, words, _ := strings.Cut(strings.TrimSpace(bare), " ")
		if level > len(above) || !strings.HasSuffix(name, "/") {
			t.Fatalf("%s: not a folder one level below the one before: %q", file, line)
		}
		above = append(above[:level], strings.TrimSuffix(name, "/"))
		tree[path.Join(above...)] = strings.TrimSpace(words)
	}
	return tree
}

var goFile = regexp.MustCompile(`[\w/]+\.go\b`)

// TestPackageDocsNameFilesThatExist looks for the files that each doc.go names, in its folder or below.
func TestPackageDocsNameFilesThatExist(t *testing.T) {
	eachGoFile(t, func(file string) {
		if path.Base(file) != "doc.go" {
			return
		}
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range goFile.FindAllString(string(text), -1) {
			_, here := os.Stat(filepath.Join("..", path.Dir(file), name))
			_, fromRoot := os.Stat(filepath.Join("..", name))
			if here != nil && fromRoot != nil {
				t.Errorf("%s names %s, which is not there", file, name)
			}
		}
	})
}
