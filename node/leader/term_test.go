package leader

import (
	"log/slog"
	"testing"

	"pnode/swarm/consensus"
)

// TestWhoLeavesInGoodOrderIsNoWarning: the end of a process is expected where its node was leaving, or the run ends; its silence is not.
func TestWhoLeavesInGoodOrderIsNoWarning(t *testing.T) {
	for name, c := range map[string]struct {
		state consensus.State
		m     consensus.MemberState
		ended bool
		want  slog.Level
	}{
		"a process ends":         {consensus.State{}, consensus.Active, true, slog.LevelWarn},
		"one that was leaving":   {consensus.State{}, consensus.Draining, true, slog.LevelInfo},
		"of a run that is done":  {consensus.State{Finished: true}, consensus.Active, true, slog.LevelInfo},
		"of a run that stops":    {consensus.State{StopWanted: true}, consensus.Active, true, slog.LevelInfo},
		"silence of one leaving": {consensus.State{}, consensus.Draining, false, slog.LevelWarn},
		"silence in the end":     {consensus.State{Finished: true}, consensus.Active, false, slog.LevelWarn},
	} {
		if level, text := departure(c.state, consensus.Member{State: c.m}, c.ended); level != c.want {
			t.Errorf("%s: %q at level %v, want %v", name, text, level, c.want)
		}
	}
}
