package planner

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// pure are the packages that must give the same result on every node, and what they are
// built from.
var pure = []string{
	"planner", "planner/change", "planner/comparison", "planner/plan", "planner/cost", "planner/elastic", "planner/founding", "planner/layout",
	"planner/claims", "planner/holders", "planner/measure", "planner/neighbours", "planner/optimum", "planner/order", "planner/partition", "planner/report", "planner/rounds", "planner/sharding", "planner/sim", "planner/simulate",
	"pipeline/schedule", "pipeline/wire", "pipeline/wire/strict",
}

// forbidden imports, each with the reason; a name ending in / forbids all below it.
var forbidden = []struct{ name, reason string }{
	{"net", "input comes as arguments: the network belongs to swarm and pipeline/link"},
	{"net/", "input comes as arguments: the network belongs to swarm and pipeline/link"},
	{"os", "no files, no environment: the same input must give the same bytes on every node"},
	{"os/", "no files, no environment: the same input must give the same bytes on every node"},
	{"io/fs", "no files: checkpoint and node/dataset read them"},
	{"io/ioutil", "no files: checkpoint and node/dataset read them"},
	{"path/filepath", "no files: checkpoint and node/dataset read them"},
	{"syscall", "nothing that depends on the operating system"},
	{"runtime", "nothing that depends on the machine: its size comes in profiles"},
	{"runtime/", "nothing that depends on the machine: its size comes in profiles"},
	{"unsafe", "bytes have one order on every architecture"},
	{"sync", "no goroutines, so nothing to guard"},
	{"sync/", "no goroutines, so nothing to guard"},
	{"context", "pure functions do not wait; only the search of package planner, and what calls it, may take long enough to be ended"},
	{"log", "pure packages return reasons instead of logging"},
	{"log/", "pure packages return reasons instead of logging"},
	{"math/rand", "its global source differs in every process; math/rand/v2 with a seed is accepted"},
	{"crypto/rand", "randomness comes as a seed"},
	{"time", "the clock is an argument; durations are integer nanoseconds"},
	{"flag", "configuration comes as arguments"},
	{"pnode/node", "imports go one way: the node calls the planner"},
	{"pnode/node/", "imports go one way: the node calls the planner"},
	{"pnode/swarm", "the planner must not know that there is a network"},
	{"pnode/swarm/", "the planner must not know that there is a network"},
	{"pnode/checkpoint", "what is stored does not decide what is planned"},
	{"pnode/pipeline", "the runner carries plans out, it does not make them"},
	{"pnode/pipeline/link", "connections belong to the runner"},
	{"pnode/pipeline/collective", "reductions belong to the runner"},
	{"pnode/kernels/cpu", "backends measure; the planner gets the measurements"},
}

// TestPurePackagesImportNothingImpure parses every non-test file.
func TestPurePackagesImportNothingImpure(t *testing.T) {
	for _, dir := range pure {
		paths, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(dir), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files := 0
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			files++
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, wrong := range append(impureImports(file), impureStatements(file)...) {
				if strings.HasPrefix(wrong, "imports context:") && (dir == "planner" || dir == "planner/comparison" || dir == "planner/report") {
					continue
				}
				t.Errorf("%s %s", path, wrong)
			}
		}
		if files == 0 {
			t.Errorf("no files in %s", dir)
		}
	}
}

// impureImports returns what is wrong with a file's imports.
func impureImports(file *ast.File) (wrong []string) {
	for _, imp := range file.Imports {
		name, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		for _, f := range forbidden {
			if name == f.name || (strings.HasSuffix(f.name, "/") && strings.HasPrefix(name, f.name)) {
				wrong = append(wrong, fmt.Sprintf("imports %s: %s", name, f.reason))
			}
		}
		if first, _, _ := strings.Cut(name, "/"); strings.Contains(first, ".") {
			wrong = append(wrong, fmt.Sprintf("imports %s: pure packages use the standard library only", name))
		}
	}
	return wrong
}

// seeded are the names of math/rand/v2 that have nothing to do with its global source.
var seeded = map[string]bool{"New": true, "NewPCG": true, "Rand": true, "PCG": true}

// impureStatements finds goroutines, channels and the global random source.
func impureStatements(file *ast.File) (wrong []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			wrong = append(wrong, "starts a goroutine: pure packages compute in the caller's")
		case *ast.ChanType:
			wrong = append(wrong, "has a channel: pure packages do not wait")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "rand" && !seeded[n.Sel.Name] {
				wrong = append(wrong, fmt.Sprintf("uses rand.%s: randomness comes from a seeded source", n.Sel.Name))
			}
		}
		return true
	})
	return wrong
}

// TestImpurityIsFound feeds the checks what they must refuse.
func TestImpurityIsFound(t *testing.T) {
	const bad = `package p
import ("net/http"; "time"; "github.com/a/b"; "math/rand/v2")
func f(c chan int) { go f(c); rand.IntN(3) }`
	file, err := parser.ParseFile(token.NewFileSet(), "bad.go", bad, 0)
	if err != nil {
		t.Fatal(err)
	}
	if imports, statements := impureImports(file), impureStatements(file); len(imports) != 3 || len(statements) != 3 {
		t.Errorf("found %q and %q", imports, statements)
	}
}
