package node

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// wayLimits bounds the functions that a reader must open to follow each of the five ways through the
// source. docs/architecture.md lists them under headings of these names.
var wayLimits = map[string]int{
	"Activation": 24,
	"Gradient":   20,
	"Plan":       30,
	"Checkpoint": 24,
	"Join":       16,
}

// An entry of a way names a function by folder, type and name. Without more words the entry before it calls
// it, or passes it on as a value.
//
//  3. `pipeline.stepRun.send`: what it does
//  4. `pipeline.stepRun.send`, from `pipeline.stepRun.do`: an earlier entry calls it instead
//  5. `pipeline.stepRun.sendAll`, over `sends`: both name the channel, field or message that lies between
//  6. `pipeline.stepRun.fetch`, which calls it: the entry before returns to this one
var wayEntry = regexp.MustCompile("^\\d+\\. `([^`]+)`(?:, from `([^`]+)`)?(?:, over `([^`]+)`)?(, which calls it)?: \\S")

type wayStep struct {
	function, from, over string
	calls                bool // the entry before
}

// TestWaysAreTrue fails where docs/architecture.md lists a function that does not exist, or that the
// one before it does not reach, and for lists longer than their limits.
func TestWaysAreTrue(t *testing.T) {
	ways := readWays(t, filepath.Join("..", "docs", "architecture.md"))
	for _, name := range slices.Sorted(maps.Keys(wayLimits)) {
		steps, limit := ways[name], wayLimits[name]
		if len(steps) < 5 {
			t.Errorf("%s: the way has %d functions: is it written down?", name, len(steps))
		}
		if len(steps) > limit {
			t.Errorf("%s: %d functions to open; at most %d", name, len(steps), limit)
		}
		checkWay(t, name, steps)
	}
}

func checkWay(t *testing.T, way string, steps []wayStep) {
	t.Helper()
	seen := map[string]*source{}
	for i, step := range steps {
		function := findFunction(t, step.function)
		switch {
		case function == nil:
			t.Errorf("%s %d: there is no function %s", way, i+1, step.function)
			continue
		case seen[step.function] != nil:
			t.Errorf("%s %d: %s stands there twice", way, i+1, step.function)
		}
		seen[step.function] = function
		if i == 0 {
			continue
		}
		from := step.from
		if from == "" {
			from = steps[i-1].function
		}
		caller := seen[from]
		switch {
		case caller == nil:
			t.Errorf("%s %d: %s is no earlier entry", way, i+1, from)
		case step.over != "" && !(caller.mentions(step.over) && function.mentions(step.over)):
			t.Errorf("%s %d: %s and %s do not both mention %s", way, i+1, from, step.function, step.over)
		case step.calls && !function.calls(from):
			t.Errorf("%s %d: %s does not call %s", way, i+1, step.function, from)
		case step.over == "" && !step.calls && !caller.calls(step.function):
			t.Errorf("%s %d: %s does not call %s", way, i+1, from, step.function)
		}
	}
}

// readWays returns the entries below each heading of the third level.
func readWays(t *testing.T, file string) map[string][]wayStep {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	ways := map[string][]wayStep{}
	heading := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "### "); ok {
			heading = title
		} else if strings.HasPrefix(line, "#") {
			heading = ""
		}
		if wayLimits[heading] == 0 || line == "" || line[0] < '0' || line[0] > '9' {
			continue
		}
		m := wayEntry.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("%s: not an entry: %s", heading, line)
			continue
		}
		ways[heading] = append(ways[heading], wayStep{m[1], m[2], m[3], m[4] != ""})
	}
	return ways
}

// source is a function's declaration with the file that it stands in.
type source struct {
	dir  string
	file *ast.File
	decl *ast.FuncDecl
}

// findFunction returns the declaration of "folder.Type.Method" or "folder.Function", nil where there is none.
func findFunction(t *testing.T, name string) *source {
	t.Helper()
	dir, typ, method := splitFunction(name)
	files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Name.Name != method || (fn.Recv == nil) != (typ == "") {
				continue
			}
			if typ == "" || receiver(fn) == typ {
				return &source{dir, f, fn}
			}
		}
	}
	return nil
}

// splitFunction parts "node/api.Server.Close" into folder, type (may be empty) and name.
func splitFunction(name string) (dir, typ, function string) {
	folder, last := path.Split(name)
	parts := strings.Split(last, ".")
	switch len(parts) {
	case 2:
		return folder + parts[0], "", parts[1]
	case 3:
		return folder + parts[0], parts[1], parts[2]
	default:
		return name, "", ""
	}
}

// mentions reports whether a function's declaration contains an identifier.
func (s *source) mentions(name string) bool {
	found := false
	ast.Inspect(s.decl, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == name
		return !found
	})
	return found
}

// calls reports whether a function names another one: a method by a selector, a function of its own package by
// its bare name, one of another package through that package's import. Types are not resolved, so that
// a call through an interface counts.
func (s *source) calls(function string) bool {
	dir, typ, name := splitFunction(function)
	found := false
	ast.Inspect(s.decl, func(n ast.Node) bool {
		switch e := n.(type) {
		case *ast.SelectorExpr:
			if e.Sel.Name == name && (typ != "" || s.isPackage(e.X, dir)) {
				found = true
			}
		case *ast.Ident:
			if typ == "" && dir == s.dir && e.Name == name && e != s.decl.Name {
				found = true
			}
		}
		return !found
	})
	return found
}

// isPackage reports whether an expression is the name under which a file imports a folder of this module.
func (s *source) isPackage(expr ast.Expr, dir string) bool {
	id, ok := expr.(*ast.Ident)
	if !ok {
		return false
	}
	for _, imp := range s.file.Imports {
		imported, err := strconv.Unquote(imp.Path.Value)
		if err != nil || imported != "pnode/"+dir {
			continue
		}
		if imp.Name != nil {
			return imp.Name.Name == id.Name
		}
		return path.Base(imported) == id.Name
	}
	return false
}
