package node

import (
	"errors"
	"testing"
)

// TestAFinishedRunSaysWhoCanMoveItsEnd: this node where it is an owner's, else the machines that are.
func TestAFinishedRunSaysWhoCanMoveItsEnd(t *testing.T) {
	const begin = "node: the run is finished at step 26: start another with `pnode train`, or "
	for want, e := range map[string]finishedError{
		"move its end with `pnode train --resume --steps N --dir /x`":                                                               {dir: "/x", owner: true, names: []string{"desk"}},
		"move its end on desk or lab with `pnode train --resume --steps N`, and come back with `pnode join --dir /x`":               {dir: "/x", names: []string{"desk", "lab"}},
		"move its end on the machine that began it with `pnode train --resume --steps N`, and come back with `pnode join --dir /x`": {dir: "/x"},
	} {
		if e.step = 26; e.Error() != begin+want || !errors.Is(e, ErrFinished) {
			t.Errorf("got  %v\nwant %s%s", e, begin, want)
		}
	}
}
