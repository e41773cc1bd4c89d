package consensus

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pnode/planner"
)

// TestSetRunBoundsInitialWeights: an entry stays within its size, whatever the text.
func TestSetRunBoundsInitialWeights(t *testing.T) {
	layers := testRun().Spec.Model.Layers()
	for _, tt := range []struct {
		name string
		init planner.InitSpec
		want string
	}{
		{"as many as are accepted", planner.InitSpec{Layers: append(make([]planner.LayerInit, layers-1), planner.LayerInit{Chunks: make([]planner.Hash, MaxInitChunks)})}, ""},
		{"a layer too few", planner.InitSpec{Layers: make([]planner.LayerInit, layers-1)}, "2 layers, the model has 3"},
		{"too many chunks", planner.InitSpec{Layers: append(make([]planner.LayerInit, layers-1), planner.LayerInit{Chunks: make([]planner.Hash, MaxInitChunks+1)})}, "8193 chunks, at most 8192 (32 GiB)"},
		{"too many files", planner.InitSpec{Layers: make([]planner.LayerInit, layers), Files: make([]planner.DataFile, maxFiles+1)}, "33 files, at most 32"},
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
	chunks, err := json.Marshal(make([]planner.Hash, 16384+MaxInitChunks)) // the text's 64 GiB, and these
	if err != nil || len(chunks) > MaxEntryBytes-64<<10 {
		t.Errorf("the greatest text and weights take %d bytes of an entry's %d, %v", len(chunks), MaxEntryBytes, err)
	}
}
