package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/swarm/admission"
)

// TestAStoppedNodeIsStartedAgainBy: the command of an owner's node or of a member, and of a new run only in a folder without one.
func TestAStoppedNodeIsStartedAgainBy(t *testing.T) {
	owner, err := admission.CreateOwner(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct{ member, owner bool }{
		"start it again with `pnode join --dir ":           {true, false},
		"start it again with `pnode train --resume --dir ": {true, true},
		"start one with `pnode train` or `pnode join`":     {},
	} {
		dir := t.TempDir()
		identity, unread := admission.LoadIdentity(dir)
		invite, unmade := owner.Invite(admission.InviteOptions{Run: "r", Owner: c.owner}, time.Now())
		if err := errors.Join(unread, unmade); err != nil {
			t.Fatal(err)
		}
		capability, err := invite.Redeem(identity, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		kept, err := json.Marshal(map[string]any{"run": "r", "owner_key": owner.PublicKey(), "capability": capability})
		if err == nil && c.member {
			err = os.WriteFile(filepath.Join(dir, config.MembershipFile), kept, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dial(t.Context(), dir); !errors.Is(err, api.ErrNoNode) || !strings.Contains(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		left, err := json.Marshal(api.Address{Addr: "127.0.0.1:1", Token: "t", PID: 4711}) // of a node that was killed
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, api.AddressFile), left, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dial(t.Context(), dir); c.member && (!errors.Is(err, api.ErrNoNode) || !strings.Contains(err.Error(), "process 4711") || !strings.Contains(err.Error(), want)) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
