package consensus

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pnode/planner/plan"
)

// TestSetRunBoundsInitialWeights: an entry stays within its size, whatever the text.
func TestSetRunBoundsInitialWeights(t *testing.T) {
	layers := testRun().Spec.Model.Layers()
	for _, tt := range []struct {
		name string
		init plan.InitSpec
		want string
	}{
		{"as many as are accepted", plan.InitSpec{Layers: append(make([]plan.LayerInit, layers-1), plan.LayerInit{Chunks: make([]plan.Hash, MaxInitChunks)})}, ""},
		{"a layer too few", plan.InitSpec{Layers: make([]plan.LayerInit, layers-1)}, "2 layers, the model has 3"},
		{"too many chunks", plan.InitSpec{Layers: append(make([]plan.LayerInit, layers-1), plan.LayerInit{Chunks: make([]plan.Hash, MaxInitChunks+1)})}, "8193 chunks, at most 8192 (32 GiB)"},
		{"too many files", plan.InitSpec{Layers: make([]plan.LayerInit, layers), Files: make([]plan.DataFile, maxFiles+1)}, "33 files, at most 32"},
	} {
		e := testRun()
		e.Spec.Init = &tt.init
		state, err := Apply(State{}, e)
		switch {
		case tt.want == "" && (err != nil || state.Run == nil):
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != "" && (!errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), tt.want) || state.Run != nil):
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	chunks, err := json.Marshal(make([]plan.Hash, 16384+MaxInitChunks)) // the text's 64 GiB, and these
	if err != nil || len(chunks) > MaxEntryBytes-64<<10 {
		t.Errorf("the greatest text and weights take %d bytes of an entry's %d, %v", len(chunks), MaxEntryBytes, err)
	}
}
