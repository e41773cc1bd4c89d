package corpus

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"pnode/node/dataset"
	"pnode/node/dataset/chunkstest"
	"pnode/node/dataset/files"
	"pnode/node/dataset/source"
	"pnode/planner/plan"
)

// tree writes files into a new folder and makes it the current one.
func tree(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// stored returns the stream of a corpus, and the report.
func stored(t *testing.T, paths []string, o Options) (string, Report) {
	t.Helper()
	c, err := Find(paths, o)
	if err != nil {
		t.Fatal(err)
	}
	m := chunkstest.Memory{}
	spec, report, err := c.Store(context.Background(), m.Put)
	if err != nil {
		t.Fatal(err)
	}
	var text []byte
	for _, h := range spec.Chunks {
		text = append(text, m[h]...)
	}
	if int64(len(text)) != spec.SizeBytes || spec.SizeBytes != report.Bytes {
		t.Fatalf("stored %d bytes, spec says %d, report %d", len(text), spec.SizeBytes, report.Bytes)
	}
	return string(text), report
}

var someFiles = map[string]string{
	"b.txt":           "beta",
	"a.txt":           "alpha\n",
	"sub/z.md":        "zeta ä€😀",
	"sub/deep/c.go":   "gamma",
	"sub/.git/hidden": "hidden",
	"sub/pixel.png":   "\x89PNG\x00\xff",
	"sub/nul.txt":     "a\x00b",
	"empty.txt":       "",
}

func TestFindOrderAndReport(t *testing.T) {
	tree(t, someFiles)
	for _, c := range []struct {
		name          string
		paths         []string
		limit         int64
		want          string
		files, binary int
		truncated     bool
	}{
		{"folder", []string{"."}, 0, "alpha\n\nbeta\ngamma\nzeta ä€😀", 4, 2, false},
		{"order of arguments", []string{"b.txt", "a.txt"}, 0, "beta\nalpha\n", 2, 0, false},
		{"a file once", []string{"b.txt", ".", "./b.txt"}, 0, "beta\nalpha\n\ngamma\nzeta ä€😀", 4, 2, false},
		{"pattern", []string{"*.txt"}, 0, "alpha\n\nbeta", 2, 0, false},
		{"pattern with binaries", []string{"sub/*"}, 0, "gamma\nzeta ä€😀", 2, 2, false},
		{"pattern for hidden folders", []string{"sub/.*"}, 0, "hidden", 1, 0, false},
		{"limit at a file's end", []string{"a.txt", "b.txt"}, 6, "alpha\n", 1, 0, true},
		{"limit at the separator", []string{"a.txt", "b.txt"}, 7, "alpha\n", 1, 0, true},
		{"limit in a file", []string{"a.txt", "b.txt"}, 9, "alpha\n\nbe", 2, 0, true},
		{"limit not reached", []string{"a.txt", "b.txt"}, 11, "alpha\n\nbeta", 2, 0, false},
		{"limit in a character", []string{"sub/z.md"}, 9, "zeta ä", 1, 0, true},
		{"nothing after the limit", []string{"sub/z.md", "b.txt"}, 9, "zeta ä", 1, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, got := stored(t, c.paths, Options{LimitBytes: c.limit})
			if got.Files != c.files || got.Skipped.Files != int64(c.binary) || got.Truncated != c.truncated || text != c.want {
				t.Errorf("report %+v, text %q, want %q", got, text, c.want)
			}
		})
	}
}

func TestFindErrorsNameThePathAndTheRemedy(t *testing.T) {
	tree(t, someFiles)
	if err := os.Mkdir("bare", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		paths []string
		cause error
		says  string
	}{
		{[]string{"a.txt", "missing.txt"}, fs.ErrNotExist, "missing.txt"},
		{[]string{"a.txt", "missing.txt"}, fs.ErrNotExist, "spelling"},
		{[]string{"sub/pixel.png"}, ErrNotText, "pixel.png is not UTF-8 text"},
		{[]string{"sub/nul.txt"}, ErrNotText, "convert it or leave it out"},
		{[]string{"*.csv"}, files.ErrNone, "*.csv"},
		{[]string{"[.txt"}, filepath.ErrBadPattern, "[.txt"},
		{[]string{"bare"}, ErrNoText, "bare"},
		{[]string{"empty.txt"}, ErrNoText, "empty.txt"},
		{nil, ErrNoText, "name files or folders"},
		{[]string{os.DevNull}, files.ErrNotRegular, os.DevNull},
	} {
		found, err := Find(c.paths, Options{})
		if err == nil {
			_, _, err = found.Store(t.Context(), chunkstest.Memory{}.Put)
		}
		if err == nil || c.cause != nil && !errors.Is(err, c.cause) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: error %v, want one that is %v and says %q", c.paths, err, c.cause, c.says)
		}
	}
	if _, err := Find([]string{"a.txt"}, Options{LimitBytes: dataset.MaxBytes + 1}); err == nil {
		t.Error("a limit over dataset.MaxBytes is accepted")
	}
}

func TestFindUnreadableFile(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("this user reads everything")
	}
	tree(t, map[string]string{"a.txt": "alpha"})
	if err := os.Chmod("a.txt", 0); err != nil {
		t.Fatal(err)
	}
	c, err := Find([]string{"."}, Options{})
	if err == nil {
		_, _, err = c.Store(t.Context(), chunkstest.Memory{}.Put)
	}
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "a.txt") || !strings.Contains(err.Error(), "readable") {
		t.Errorf("error %v", err)
	}
}

func TestFindEntersALinkedFolderThatIsNamed(t *testing.T) {
	tree(t, map[string]string{"real/a.txt": "alpha"})
	if err := os.Symlink("real", "link"); err != nil {
		t.Skip(err)
	}
	if text, _ := stored(t, []string{"link"}, Options{}); text != "alpha" {
		t.Errorf("text %q", text)
	}
	// A link below a folder is not followed: it may lead out of it, or round in circles.
	if _, report := stored(t, []string{"."}, Options{}); report.Files != 1 || report.Irregular != 1 {
		t.Errorf("folder with a link: %+v", report)
	}
}

func TestStoreCutsChunks(t *testing.T) {
	long := strings.Repeat("0123456789abcde\n", dataset.ChunkBytes/16)
	tree(t, map[string]string{"1": long, "2": long, "3": "end"})
	c, err := Find([]string{"."}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := chunkstest.Memory{}
	spec, _, err := c.Store(context.Background(), m.Put)
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for _, h := range spec.Chunks {
		sizes = append(sizes, len(m[h]))
	}
	if len(sizes) != 3 || sizes[0] != dataset.ChunkBytes || sizes[1] != dataset.ChunkBytes || sizes[2] != 5 {
		t.Errorf("chunks of %v bytes", sizes)
	}
	if text, _ := stored(t, []string{"."}, Options{}); text != long+"\n"+long+"\nend" {
		t.Error("the text is not the files joined by newlines")
	}
}

func TestStoreErrors(t *testing.T) {
	tree(t, map[string]string{"a": "alpha", "b": "beta"})
	c, err := Find([]string{"."}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk full")
	_, _, err = c.Store(context.Background(), func([]byte) (plan.Hash, error) { return plan.Hash{}, full })
	if !errors.Is(err, full) {
		t.Errorf("error of put: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err = c.Store(ctx, chunkstest.Memory{}.Put); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	w := writer{chunks: io.Discard, progress: func(int64) error { return nil }}
	if err = w.copy(source.File{Path: "b"}, strings.NewReader("be"), 4); err == nil || !strings.Contains(err.Error(), "b became shorter") {
		t.Errorf("a file that became shorter: %v", err)
	}
}

// TestTextAcrossBlocks puts a character at every position around the end of the block that
// textBytes reads.
func TestTextAcrossBlocks(t *testing.T) {
	for before := 256<<10 - 5; before <= 256<<10+1; before++ {
		text := strings.Repeat("x", before) + "😀"
		for cut := range 4 { // of the character's last bytes
			size, err := textBytes(strings.NewReader(text[:len(text)-cut]), dataset.MaxBytes)
			if cut == 0 && (err != nil || size != int64(len(text))) || cut > 0 && !errors.Is(err, ErrNotText) {
				t.Fatalf("character at %d without its last %d bytes: %d, %v", before, cut, size, err)
			}
		}
	}
}

func FuzzTextBytes(f *testing.F) {
	f.Add([]byte("plain"), int64(3))
	f.Add([]byte("ä€😀"), int64(4))
	f.Add([]byte("\xf0\x9f"), int64(9))
	f.Add([]byte("a\x00"), int64(9))
	f.Fuzz(func(t *testing.T, text []byte, room int64) {
		room = max(0, min(room, 1<<20))
		size, err := textBytes(bytes.NewReader(text), room)
		valid := utf8.Valid(text) && bytes.IndexByte(text, 0) < 0
		switch {
		case errors.Is(err, ErrNotText):
			if valid {
				t.Fatal(err)
			}
		case errors.Is(err, errLimit): // what follows was not looked at
			if size > room || room-size >= utf8.UTFMax || !utf8.Valid(text[:size]) || int64(len(text)) <= room {
				t.Fatalf("cut to %d of %d, room %d", size, len(text), room)
			}
		case err != nil || !valid || size != int64(len(text)) || size > room:
			t.Fatalf("valid %v: %d of %d, room %d: %v", valid, size, len(text), room, err)
		}
	})
}

func TestGoSourceTree(t *testing.T) {
	tree(t, map[string]string{"go/src/builtin/builtin.go": "package builtin", "other/x": "x"})
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOROOT", filepath.Join(here, "go"))
	if src, err := GoSourceTree(); err != nil || src != filepath.Join(here, "go", "src") {
		t.Errorf("GOROOT set: %s, %v", src, err)
	}
	t.Setenv("GOROOT", filepath.Join(here, "other"))
	if _, err := GoSourceTree(); !errors.Is(err, ErrNoGo) || !strings.Contains(err.Error(), "other") {
		t.Errorf("GOROOT without source: %v", err)
	}
	t.Setenv("GOROOT", "")
	t.Setenv("PATH", filepath.Join(here, "other"))
	if _, err := GoSourceTree(); !errors.Is(err, ErrNoGo) || !strings.Contains(err.Error(), "`go env GOROOT` fails") {
		t.Errorf("no go command: %v", err)
	}
}

func TestGoSourceTreeOfTheGoCommand(t *testing.T) {
	want, err := goCommandRoot()
	if err != nil {
		t.Skip("no go command on the path")
	}
	t.Setenv("GOROOT", "")
	src, err := GoSourceTree()
	if err != nil || src != filepath.Join(want, "src") {
		t.Fatalf("%s, %v", src, err)
	}
	_, report := stored(t, []string{src}, Options{LimitBytes: 1 << 20})
	if report.Bytes > 1<<20 || report.Bytes < 1<<20-utf8.UTFMax || !report.Truncated {
		t.Errorf("first MiB of it: %+v", report)
	}
}
