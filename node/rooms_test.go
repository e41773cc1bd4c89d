package node

import (
	"bufio"
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Limits of a room. A type above them is where everything meets: find the nouns hidden in it.
const (
	maxMethods     = 40 // of a type, each name counted once
	maxMethodFiles = 8  // in which a type's methods stand
	maxFiles       = 30 // of a package, tests not counted
)

// figures are the three counts that the limits bound; zero where one does not apply.
type figures struct {
	methods, methodFiles, files int
}

// exempt names the packages ("kernels/cpu") and types ("kernels/cpu.Device") that have no limit, with the
// reason. A name that ends in "/" stands for every type below that folder that is called function.
var exempt = map[string]string{
	"kernels/cpu":           "one file is one operation",
	"pipeline/model":        "one file is one layer or one model family",
	"cmd/pnode":             "one file is one command",
	"kernels/cpu/asm/":      "an assembler has one method for each instruction",
	"kernels/cpu.Device":    "a backend has one method for each operation",
	"kernels/cuda.Device":   "a backend has one method for each operation",
	"kernels/opencl.Device": "a backend has one method for each operation",
	"cmd/pnode.environment": "a command is a method of what it runs in",
}

// TestRoomsAreSmall fails for types with too many methods, or methods in too many files, and for packages
// of too many files.
func TestRoomsAreSmall(t *testing.T) {
	rooms := measureRooms(t)
	if len(rooms) < 100 {
		t.Fatalf("measured %d types and packages only: is the test in the right folder?", len(rooms))
	}
	for _, name := range slices.Sorted(maps.Keys(rooms)) {
		if got := rooms[name]; !isExempt(name) && (got.methods > maxMethods || got.methodFiles > maxMethodFiles || got.files > maxFiles) {
			t.Errorf("%s has %d methods in %d files and is of %d files (0: does not apply); at most %d, %d and %d",
				name, got.methods, got.methodFiles, got.files, maxMethods, maxMethodFiles, maxFiles)
		}
	}
	for name := range exempt {
		_, there := rooms[name]
		if !there && !strings.HasSuffix(name, "/") {
			t.Errorf("%s is gone: remove it from exempt", name)
		}
	}
}

func isExempt(name string) bool {
	if _, named := exempt[name]; named {
		return true
	}
	for prefix := range exempt {
		if strings.HasSuffix(prefix, "/") && strings.HasPrefix(name, prefix) && strings.HasSuffix(name, ".function") {
			return true
		}
	}
	return false
}

// measureRooms returns the figures of every package and of every type with methods, by name. Files of all
// platforms count.
func measureRooms(t *testing.T) map[string]figures {
	t.Helper()
	methods := map[string]map[string]bool{} // type -> names of methods
	places := map[string]map[string]bool{}  // type -> files with methods
	rooms := map[string]figures{}
	add := func(sets map[string]map[string]bool, room, member string) {
		if sets[room] == nil {
			sets[room] = map[string]bool{}
		}
		sets[room][member] = true
	}
	eachGoFile(t, func(path string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		room := rooms[dir]
		room.files++
		rooms[dir] = room
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil {
				name := dir + "." + receiver(fn)
				add(methods, name, fn.Name.Name)
				add(places, name, path)
			}
		}
	})
	for name := range methods {
		rooms[name] = figures{methods: len(methods[name]), methodFiles: len(places[name])}
	}
	return rooms
}

// receiver returns the name of a method's type, without pointer and type parameters.
func receiver(fn *ast.FuncDecl) string {
	expr := fn.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// eachGoFile calls visit with the path of every Go file of the module, relative to its root.
func eachGoFile(t *testing.T, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		rel, err := filepath.Rel("..", path)
		if err == nil {
			visit(filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var riddle = regexp.MustCompile(`^// [A-Za-z0-9_]+ (is|are) (that|those|the ones?|what)\b`)

// TestCommentsOpenWithAVerb counts comments that point at something else instead of saying what a thing
// does or holds: "part is that with a number of the program" for "part decodes a micro-batch's number".
func TestCommentsOpenWithAVerb(t *testing.T) {
	found := map[string]int{}
	total := 0
	eachGoFile(t, func(path string) {
		f, err := os.Open(filepath.Join("..", path))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			if riddle.Match(lines.Bytes()) {
				found[path]++
				total++
			}
		}
		if lines.Err() != nil {
			t.Fatal(lines.Err())
		}
	})
	if total == 0 {
		return
	}
	t.Errorf("%d comments match %s: begin with the name and an active verb", total, riddle)
	for _, path := range slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		return cmp.Or(cmp.Compare(found[b], found[a]), cmp.Compare(a, b))
	}) {
		t.Errorf("%3d in %s", found[path], path)
	}
}
