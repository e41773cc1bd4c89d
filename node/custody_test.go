package node

import (
	"strings"
	"testing"

	"pnode/checkpoint"
	"pnode/node/checkpointer"
	"pnode/node/config"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestWhoLacksRoomForTheModelIsToldAtTheStart: an owner's node, and one that was asked to keep the model, say so where their
// disk has no room for it, with the size of a checkpoint and what helps. Others say nothing.
func TestWhoLacksRoomForTheModelIsToldAtTheStart(t *testing.T) {
	run := plan.RunSpec{Model: model.Config{Vocab: 64, Context: 16, Blocks: 2, Heads: 1, Channels: 32}}
	state := consensus.State{Run: &run, Owners: []plan.PeerID{"owner"}}
	size := plan.Size(checkpointer.WholeBytes(run))
	for name, c := range map[string]struct {
		self    plan.PeerID
		mode    string
		reserve int64 // of the disk, that stays free
		told    bool
	}{
		"an owner with a small disk":                         {"owner", config.KeepAuto, 1 << 60, true},
		"an owner with room":                                 {"owner", config.KeepAuto, 64 << 20, false},
		"an owner that keeps none":                           {"owner", config.KeepOff, 1 << 60, false},
		"another member with a small disk":                   {"other", config.KeepAuto, 1 << 60, false},
		"another member that is to keep it, on a small disk": {"other", config.KeepOn, 1 << 60, true},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{ReserveBytes: c.reserve})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			keeper := &checkpointer.Checkpointer{Config: checkpointer.Config{Self: c.self, Store: store}}
			var notices []string
			(&custody{mode: c.mode, whole: &checkpointer.Whole{Checkpointer: keeper}}).tellRoom(state, func(text string) { notices = append(notices, text) })
			if told := len(notices) > 0; told != c.told {
				t.Fatalf("told %q, want %t", notices, c.told)
			}
			for _, part := range []string{"a checkpoint with all layers has " + size, "--dir", "`pnode join INVITE --keep-whole`"} {
				if c.told && !strings.Contains(notices[0], part) {
					t.Errorf("%q does not say %q", notices[0], part)
				}
			}
		})
	}
}
