package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pnode/checkpoint"
	"pnode/node"
	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/plain"
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

// TestAFolderInUse is not told to be started again, and no place for another run.
func TestAFolderInUse(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	one, local := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, filepath.Join(local, "node-0")} {
		release, err := checkpoint.Lock(filepath.Join(dir, "store"))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, config.MembershipFile), []byte("{}"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
	for _, dir := range []string{one, local} {
		if _, err := dial(t.Context(), dir); !errors.Is(err, api.ErrNoNode) || !strings.Contains(err.Error(), "starting or ending") || strings.Contains(err.Error(), "--resume") {
			t.Errorf("no address yet: %v", err)
		}
		_, err := config.Config{Dir: dir}.Place(time.Now())
		if told := taken(err, dir); !errors.Is(err, config.ErrDirTaken) || !errors.Is(told, node.ErrRunning) || !strings.Contains(told.Error(), "pnode leave --dir "+plain.Quote(dir)) {
			t.Errorf("%v is told as %v", err, told)
		}
	}
	if err := fmt.Errorf("%w: %s", config.ErrDirTaken, "x"); taken(err, t.TempDir()) != err {
		t.Error("a run that nobody goes on with is said to run")
	}
}
