package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// founded makes dir the folder of a node that belongs to a run.
func founded(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, MembershipFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAFolderHoldsOneKindOfRun(t *testing.T) {
	const one, local = "", "node-1"
	for _, tt := range []struct {
		name  string
		holds []string // folders of members within the run's
		c     Config
		err   error
		want  string
	}{
		{"empty, new", nil, Config{}, nil, ""},
		{"empty, new local", nil, Config{Local: 2}, nil, ""},
		{"empty, resume", nil, Config{Resume: true}, ErrNoRun, "pnode train"},
		{"one, new", []string{one}, Config{}, ErrDirTaken, "--resume"},
		{"one, new local", []string{one}, Config{Local: 2}, ErrDirTaken, "--resume"},
		{"one, resume", []string{one}, Config{Resume: true}, nil, ""},
		{"one, resume local", []string{one}, Config{Resume: true, Local: 2}, ErrInvalid, "leave --local out"},
		{"local, new", []string{local}, Config{}, ErrDirTaken, "--resume"},
		{"local, new local", []string{local}, Config{Local: 2}, ErrDirTaken, "--resume"},
		{"local, resume", []string{local}, Config{Resume: true}, nil, ""},
		{"local, resume local", []string{local}, Config{Resume: true, Local: 3}, nil, ""},
		{"both, new", []string{one, local}, Config{}, ErrDirTaken, "another folder"},
		{"both, resume", []string{one, local}, Config{Resume: true}, ErrDirTaken, "move node-*"},
		{"both, resume local", []string{one, local}, Config{Resume: true, Local: 2}, ErrDirTaken, "move node-*"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.c.Dir = t.TempDir()
			for _, member := range tt.holds {
				founded(t, filepath.Join(tt.c.Dir, member))
			}
			p, err := tt.c.Place(time.Now())
			if !errors.Is(err, tt.err) || (err != nil) != (tt.err != nil) {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			if err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.c.Dir)) {
				t.Errorf("%q lacks %q or the folder", err, tt.want)
			}
			if err == nil && p.Dir != tt.c.Dir {
				t.Errorf("got %s, want %s", p.Dir, tt.c.Dir)
			}
		})
	}
}

func TestJoiningLeavesLocalNodesAlone(t *testing.T) {
	dir := t.TempDir()
	if _, err := JoinPlace(dir, false, time.Now()); !errors.Is(err, ErrNoRun) {
		t.Errorf("nothing to come back to: %v", err)
	}
	if p, err := JoinPlace(dir, true, time.Now()); err != nil || p.Dir != dir {
		t.Errorf("an empty folder, with an invite: %v", err)
	}
	founded(t, NodeDir(dir, 0))
	for _, invited := range []bool{true, false} {
		if _, err := JoinPlace(dir, invited, time.Now()); !errors.Is(err, ErrDirTaken) || !strings.Contains(err.Error(), "--resume") {
			t.Errorf("local nodes, invited %v: %v", invited, err)
		}
	}
	if p, err := JoinPlace(NodeDir(dir, 0), false, time.Now()); err != nil || p.Dir != NodeDir(dir, 0) {
		t.Errorf("one of the local nodes: %v", err)
	}
}

func TestTidyRemovesOnlyWhatThisStartMade(t *testing.T) {
	root := t.TempDir()
	there := filepath.Join(root, "there")
	if err := os.Mkdir(there, 0o700); err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(there, "a", "b")
	for _, tt := range []struct {
		name   string
		dir    string
		member string // that the start founded
		gone   string // afterwards
		stays  string
	}{
		{"made, nothing founded", deep, "", filepath.Join(there, "a"), there},
		{"there before", there, "", "", there},
		{"founded", deep, deep, "", deep},
		{"founded by local nodes", filepath.Join(root, "local"), NodeDir(filepath.Join(root, "local"), 0), "", filepath.Join(root, "local")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := NewPlace(tt.dir, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(p.Dir, "identity.key"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.member != "" {
				founded(t, tt.member)
			}
			if err := p.Tidy(); err != nil {
				t.Fatal(err)
			}
			if tt.gone != "" && exists(tt.gone) {
				t.Errorf("%s is left", tt.gone)
			}
			if !exists(tt.stays) {
				t.Errorf("%s is gone", tt.stays)
			}
		})
	}
}

func TestLocalNodesCountsToTheLast(t *testing.T) {
	dir := t.TempDir()
	founded(t, NodeDir(dir, 0))
	founded(t, NodeDir(dir, 2))
	if got := LocalNodes(dir); got != 3 {
		t.Errorf("got %d, want 3: node-2 comes back as node 2", got)
	}
	if got := LocalNodes(t.TempDir()); got != 0 {
		t.Errorf("got %d local nodes in an empty folder", got)
	}
}

// TestTheWayBackIsTheNodes: whoever pastes what a node ended with starts that node, or its whole run of local nodes.
func TestTheWayBackIsTheNodes(t *testing.T) {
	run := t.TempDir()
	if err := os.WriteFile(filepath.Join(run, RunFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	alone := filepath.Join(t.TempDir(), "node-1")
	for _, c := range []struct {
		dir   string
		owner bool
		want  string
	}{
		{"/data/run7", true, "pnode train --resume --dir /data/run7"},
		{"/data/run7", false, "pnode join --dir /data/run7"},
		{NodeDir(run, 1), false, "pnode train --resume --dir " + run},
		{alone, false, "pnode join --dir " + alone},
	} {
		if got := WayBack(c.dir, c.owner); got != c.want {
			t.Errorf("%s: %q, want %q", c.dir, got, c.want)
		}
	}
}

// TestANewRunGoesIntoNoFolderOfOtherThings: neither that of who begins a run nor of who joins one; what pnode left at a start that failed is
// no other thing.
func TestANewRunGoesIntoNoFolderOfOtherThings(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		want  string // named; empty: the folder is taken
	}{
		"empty":              {nil, ""},
		"a new disk":         {[]string{"lost+found"}, ""},
		"hidden":             {[]string{".git"}, ""},
		"a start of before":  {[]string{"identity.key", "store", "notes.txt"}, ""},
		"photos":             {[]string{"a.jpg", "b.jpg"}, "it holds a.jpg, b.jpg; name a new or an empty one"},
		"many of other ones": {[]string{"a", "b", "c", "d", "e", "f"}, "it holds a, b, c, d and 2 more; name"},
	} {
		dir := t.TempDir()
		for _, f := range c.files {
			if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, begins := Config{Dir: dir}.Place(time.Now())
		_, joins := JoinPlace(dir, true, time.Now())
		for _, err := range []error{begins, joins} {
			if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "--dir is "+dir) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != len(c.files) {
			t.Errorf("%s: the folder holds %v, %v", name, left, err)
		}
	}
}

// TestAFolderThatCannotBeWrittenNamesARemedy before anything is made.
func TestAFolderThatCannotBeWrittenNamesARemedy(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	if f, err := os.CreateTemp(dir, ""); err == nil {
		_ = f.Close()
		t.Skip("this user may write everywhere")
	}
	if _, err := NewPlace(dir, time.Now()); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "another folder with --dir") {
		t.Errorf("got %v", err)
	}
}
