package local

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pnode/node/config"
)

// TestLocalRunSaysWhatMembersSee: where other machines can join node 0, also when it is resumed without --listen.
func TestLocalRunSaysWhatMembersSee(t *testing.T) {
	for listen, want := range map[string][]string{"": nil, "127.0.0.1:0": nil, "0.0.0.0:0": config.TellOwner()} {
		dir := t.TempDir()
		c := config.Default()
		c.Listen = listen
		for _, resumed := range []bool{false, true} {
			if resumed { // node 0 has begun
				node := filepath.Join(dir, "node-0")
				if err := errors.Join(os.MkdirAll(node, 0o700), os.WriteFile(filepath.Join(node, config.MembershipFile), nil, 0o600)); err != nil {
					t.Fatal(err)
				}
				c.Resume, c.Listen = true, ""
			}
			r := newRecord()
			s, err := New(Options{Nodes: 2, Dir: dir, Config: c, Output: r})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.prepare(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(r.notices, want) {
				t.Errorf("with --listen %q, resumed %v, it says %q", listen, resumed, r.notices)
			}
		}
	}
}
