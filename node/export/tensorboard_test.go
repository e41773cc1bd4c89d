package export

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pnode/node/api"
)

// readBack prints what TensorBoard shows of a folder: for each series its steps and values.
const readBack = `
import json, sys
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.util import tensor_util
acc = event_accumulator.EventAccumulator(sys.argv[1])
acc.Reload()
print(json.dumps({tag: [[e.step, float(tensor_util.make_ndarray(e.tensor_proto))] for e in acc.Tensors(tag)] for tag in acc.Tags()["tensors"]}
    | {tag: [[e.step, e.value] for e in acc.Scalars(tag)] for tag in acc.Tags()["scalars"]}))
`

// TestTensorBoardReadsIt: the tensorboard package of PyPI shows each step once, with the values of the last time that it was done, over two starts.
func TestTensorBoardReadsIt(t *testing.T) {
	python := os.Getenv("PNODE_TRANSFORMERS_PYTHON")
	if python == "" {
		t.Skip("PNODE_TRANSFORMERS_PYTHON is not set: it is a Python with tensorboard, as .ci/python makes one")
	}
	if err := exec.Command(python, "-c", "import tensorboard").Run(); err != nil {
		t.Skipf("%s has no tensorboard", python)
	}
	dir := filepath.Join(t.TempDir(), "tb")
	at, files := time.Unix(1_700_000_000, 0), &own{}
	for start, events := range [][]api.Event{
		{made(1, 1), made(2, 1), made(3, 1), made(2, 2), made(3, 2), made(4, 2), made(5, 2)}, // a generation goes back to step 1
		{made(4, 3), made(5, 3), made(6, 3)},                                                 // resumed from a checkpoint of step 3
	} {
		at = at.Add(time.Minute)
		b, err := newBoard(dir, files, at)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range events {
			e.Loss += float64(e.Generation)
			b.take(Row{e, at.Add(time.Duration(i) * time.Second)})
			if err := b.flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.close(t.Context()); err != nil {
			t.Fatalf("start %d: %v", start, err)
		}
	}
	out, err := exec.Command(python, "-c", readBack, dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	var series map[string][][2]float64
	if err := json.Unmarshal(out, &series); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	want := [][2]float64{{1, 4.9}, {2, 5.8}, {3, 5.7}, {4, 6.6}, {5, 6.5}, {6, 6.4}}
	for i, p := range series[tagLoss] {
		series[tagLoss][i][1] = float64(int(p[1]*1e4+0.5)) / 1e4 // it is a float32
	}
	if !slices.Equal(series[tagLoss], want) || len(series[tagGradientNorm]) != 6 || len(series[tagMemory]) != 6 || series[tagLearningRate][0][1] == 0 {
		t.Errorf("got %v, want losses %v", series, want)
	}
}
