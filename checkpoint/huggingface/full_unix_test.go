//go:build unix

package huggingface

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"pnode/checkpoint"
	"pnode/checkpoint/safetensors"
	"pnode/pipeline/model"
)

// TestAFullDiskTellsWhatIsNeeded: all of the weights, where, and what to do.
func TestAFullDiskTellsWhatIsNeeded(t *testing.T) {
	c := model.Config{Vocab: 256, Context: 16, Blocks: 2, Heads: 2, Channels: 64}
	into := t.TempDir()
	for dtype, want := range map[safetensors.DType]float64{safetensors.F32: 4, safetensors.BF16: 2} {
		e := Export{Config: c, DType: dtype, Layer: func(layer int, _ []float32) error {
			if layer == 1 {
				return &os.PathError{Op: "write", Path: "weights", Err: syscall.ENOSPC}
			}
			return nil
		}}
		if got := float64(e.weightBytes()); got != want*float64(c.Params()) {
			t.Errorf("%s: %v bytes of weights for %d parameters", dtype, got, c.Params())
		}
		err := Write(filepath.Join(into, "out"), e)
		says := regexp.MustCompile(`disk full: 0\.[1-9] MB are needed at ` + regexp.QuoteMeta(into) + `, where [0-9]+\.[0-9] MB were free; free space there or name a folder on another disk`)
		if !errors.Is(err, checkpoint.ErrDiskFull) || !errors.Is(err, syscall.ENOSPC) || !says.MatchString(err.Error()) {
			t.Errorf("%s: %v", dtype, err)
		}
		if left, err := os.ReadDir(into); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
}
