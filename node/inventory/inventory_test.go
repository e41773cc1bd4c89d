package inventory

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/plain"
	"pnode/planner/plan"
)

// TestRegisterOutlivesDamage: what is no entry is left out and removed by the next start; each folder is there once, by its newest start.
func TestRegisterOutlivesDamage(t *testing.T) {
	r, begin := Register{Dir: filepath.Join(t.TempDir(), "nodes")}, time.Unix(1_700_000_000, 0)
	if all := r.Entries(); len(all) != 0 {
		t.Errorf("before the first start: %v", all)
	}
	note := func(folder string, after time.Duration) {
		t.Helper()
		if err := r.Note(folder, begin.Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	note("/a", 0)
	note("/b", time.Second)
	note("/a", time.Minute)
	for name, content := range map[string]string{
		"damaged.json":         "{",
		nameOf("/other"):       `{"folder":"/a"}`,
		nameOf("not/absolute"): `{"folder":"not/absolute"}`,
		"stranger":             "",
	} {
		if err := os.WriteFile(filepath.Join(r.Dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := r.Entries()
	if len(all) != 2 || all[0].Folder != "/a" || all[1].Folder != "/b" || !all[0].Started.Equal(begin.Add(time.Minute)) {
		t.Errorf("entries %v", all)
	}
	note("/c", time.Hour)
	if files, err := os.ReadDir(r.Dir); err != nil || len(files) != 3 {
		t.Errorf("%d files are left (%v), want one for each folder", len(files), err)
	}
	if r.Note("relative", begin) == nil {
		t.Error("a relative path was noted")
	}
}

// TestRegisterIsBounded: the oldest starts go.
func TestRegisterIsBounded(t *testing.T) {
	r, begin := Register{Dir: t.TempDir()}, time.Unix(1_700_000_000, 0)
	for i := range MaxFolders + 2 {
		folder := fmt.Sprintf("/run-%d", i)
		at := begin.Add(time.Duration(i) * time.Second)
		if i < MaxFolders-1 { // without a look at all others each time
			if err := r.put(nameOf(folder), fmt.Appendf(nil, `{"folder":%q,"started":%q}`, folder, at.Format(time.RFC3339))); err != nil {
				t.Fatal(err)
			}
		} else if err := r.Note(folder, at); err != nil {
			t.Fatal(err)
		}
	}
	all := r.Entries()
	if len(all) != MaxFolders || all[0].Folder != fmt.Sprintf("/run-%d", MaxFolders+1) || all[MaxFolders-1].Folder != "/run-2" {
		t.Errorf("%d entries, from %s to %s", len(all), all[0].Folder, all[len(all)-1].Folder)
	}
}

// TestListTellsHowNodesEnded by what their folders hold, and that one is about to answer by its lock.
func TestListTellsHowNodesEnded(t *testing.T) {
	root := t.TempDir()
	r := Register{Dir: filepath.Join(root, "nodes")}
	folder := func(name string, step int) string {
		dir := filepath.Join(root, name)
		manifests := filepath.Join(dir, "store", "manifests")
		if err := os.MkdirAll(manifests, 0o700); err != nil {
			t.Fatal(err)
		}
		if step > 0 {
			if err := os.WriteFile(filepath.Join(manifests, fmt.Sprintf("step-%020d", step)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, config.MembershipFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.Note(dir, time.Now()); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	finished, cut, held, hangs, gone := folder("finished", 60), folder("cut", 12), folder("held", 0), folder("hangs", 24), folder("gone", 0)
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{held, hangs} {
		release, err := checkpoint.Lock(filepath.Join(dir, "store"))
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
	deaf, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	if err := os.WriteFile(filepath.Join(hangs, api.AddressFile), fmt.Appendf(nil, `{"addr":%q,"token":"t","pid":7}`, deaf.Addr()), 0o600); err != nil {
		t.Fatal(err)
	}
	look := func(dir string) (Membership, error) {
		m := Membership{Run: "r", Name: filepath.Base(dir), Steps: 60, Next: "again " + dir}
		if dir == finished {
			m.Finished = 60
		}
		return m, nil
	}
	got := map[string]string{}
	all := Inventory{Register: r, Root: root, Look: look}.List(t.Context())
	for _, n := range all {
		got[n.Dir] = fmt.Sprintf("%s %d/%d: %s", n.State, n.Step, n.Steps, n.Next)
		if pid := n.PID == os.Getpid(); pid != n.Running || n.Running != strings.HasPrefix(n.Next, "pnode status") {
			t.Errorf("process %d: %+v", n.PID, n)
		}
	}
	want := map[string]string{
		finished: "finished 60/60: again " + finished,
		cut:      "interrupted 12/60: again " + cut,
		held:     "starting or ending 0/60: pnode status --dir " + plain.Quote(held),
		hangs:    "does not answer 24/60: pnode status --dir " + plain.Quote(hangs),
	}
	for dir, w := range want {
		if got[dir] != w {
			t.Errorf("%s: %q, want %q", dir, got[dir], w)
		}
	}
	if len(all) != len(want) || all[0].Dir != hangs {
		t.Errorf("%d nodes, want %d, those that run first: %v", len(all), len(want), all)
	}
}

// TestComeBack: to the one run that is unfinished and does not run; else what there is to choose from, or what is up, is named.
func TestComeBack(t *testing.T) {
	node := func(dir, state, next string, step plan.Step) Node {
		return Node{Dir: dir, State: state, Running: state == "training", Step: step, Steps: 60, Next: next}
	}
	done, up := node("/done", Finished, "pnode generate", 60), node("/up", "training", "pnode status --watch --dir /up", 9)
	mine, other := node("/mine", Interrupted, "pnode join --dir /mine", 12), node("/other", Interrupted, "pnode train --resume --dir /other", 0)
	local := func(i int) Node {
		return node(fmt.Sprintf("/local/node-%d", i), Interrupted, "pnode train --resume --dir /local", 7)
	}
	var many []Node
	for i := range mostNamed + 2 {
		many = append(many, node("", Interrupted, fmt.Sprintf("pnode join --dir /%d", i), 1))
	}
	for name, c := range map[string]struct {
		all     []Node
		dir     string
		problem error
		says    []string
	}{
		"none":        {},
		"finished":    {all: []Node{done}},
		"one":         {all: []Node{up, mine, done}, dir: "/mine"},
		"local nodes": {all: []Node{local(0), local(1)}, dir: "/local"},
		"up":          {all: []Node{up, done}, problem: config.ErrNoRun, says: []string{"`pnode status --watch --dir /up` shows the one in /up"}},
		"two": {
			all: []Node{up, mine, other, done}, problem: ErrSeveral,
			says: []string{"`pnode join --dir /mine` (at step 12 of 60), `pnode train --resume --dir /other` (before its first checkpoint)"},
		},
		"many": {all: many, problem: ErrSeveral, says: []string{"--dir /4`", "and 2 more: `pnode ps`"}},
	} {
		n, ok, err := comeBack(c.all)
		if ok != (c.dir != "") || ok && n.Folder() != c.dir || !errors.Is(err, c.problem) {
			t.Errorf("%s: %v %q, %v", name, ok, n.Folder(), err)
		}
		for _, s := range c.says {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v\nwant ... %s", name, err, s)
			}
		}
	}
}

// TestARegisterThatCannotBeReadIsSaid: none yet is no damage.
func TestARegisterThatCannotBeReadIsSaid(t *testing.T) {
	r := Register{Dir: filepath.Join(t.TempDir(), "nodes")}
	if err := r.Damage(); err != nil {
		t.Errorf("before the first start: %v", err)
	}
	if err := os.WriteFile(r.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Damage(); err == nil || !strings.Contains(err.Error(), r.Dir) || !strings.Contains(err.Error(), "make that folder readable") {
		t.Errorf("where a file is in its place: %v", err)
	}
}
