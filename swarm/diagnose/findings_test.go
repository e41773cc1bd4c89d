package diagnose

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestTheTableHasAllFindings: docs/networks.md has a row for each finding, and none for a word that is no finding.
func TestTheTableHasAllFindings(t *testing.T) {
	kinds := constants(t, "../neterr/kind.go", "Kind", nil)
	findings := slices.Collect(maps.Values(constants(t, "test.go", "Finding", kinds)))
	for name, kind := range kinds {
		if !slices.Contains(findings, kind) {
			t.Errorf("%s of package neterr is no finding", name)
		}
	}
	told := tableWords(t, "../../docs/networks.md")
	for _, f := range findings {
		if good := Finding(f) == Works || Finding(f) == Skipped; !good && !slices.Contains(told, f) {
			t.Errorf("docs/networks.md lacks a row for %q", f)
		}
	}
	for _, word := range told {
		if !slices.Contains(findings, word) {
			t.Errorf("docs/networks.md has a row for %q, which no test finds", word)
		}
	}
}

// constants returns the texts of a file's constants of a type by their names. Those that are converted from another
// package's constants have the texts of these.
func constants(t *testing.T, file, of string, others map[string]string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	is := func(e ast.Expr) bool {
		name, ok := e.(*ast.Ident)
		return ok && name.Name == of
	}
	found := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		name := spec.Names[0].Name
		switch value := spec.Values[0].(type) {
		case *ast.BasicLit:
			if is(spec.Type) {
				found[name], err = strconv.Unquote(value.Value)
			}
		case *ast.CallExpr:
			if other, ok := value.Args[0].(*ast.SelectorExpr); ok && is(value.Fun) {
				found[name] = others[other.Sel.Name]
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return true
	})
	if len(found) == 0 {
		t.Fatalf("%s has no constants of type %s", file, of)
	}
	return found
}

// tableWords returns what stands between backquotes in the column of findings.
func tableWords(t *testing.T, file string) (words []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "| test | finding | cause | what to do |\n")
	if !ok {
		t.Fatalf("%s has no table of findings", file)
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, " | ")
		if len(cells) < 4 {
			break
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			words = append(words, m[1])
		}
	}
	return words
}
