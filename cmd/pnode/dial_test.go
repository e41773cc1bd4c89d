package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pnode/node/api"
	"pnode/node/config"
)

// TestAStoppedNodeIsStartedAgainBy: the command of an owner's node or of a member, and of a new run only in a folder without one.
func TestAStoppedNodeIsStartedAgainBy(t *testing.T) {
	for want, files := range map[string][]string{
		"start it again with `pnode join --dir ":           {config.MembershipFile},
		"start it again with `pnode train --resume --dir ": {config.MembershipFile, "owner.key"},
		"start one with `pnode train` or `pnode join`":     nil,
	} {
		dir := t.TempDir()
		for _, name := range files {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := dial(t.Context(), dir); !errors.Is(err, api.ErrNoNode) || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
