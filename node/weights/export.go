package weights

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"pnode/checkpoint/huggingface"
	"pnode/checkpoint/safetensors"
)

// ExportOptions say how a model is written.
type ExportOptions struct {
	// DType of the weights: f32, bf16 or f16; empty is the model's own.
	DType string
	// ShardBytes splits the weights; 0 is huggingface.DefaultShardBytes.
	ShardBytes int64
	// Progress, if not nil, is told the layers that are done.
	Progress func(done, total int)
}

// Export writes a folder in Hugging Face's layout, complete or not at all; one that is there
// must be empty. It gives the type of the weights. The error wraps ErrNotFinite for a model
// that cannot be used, ErrRange for one that dtype cannot hold.
func (m *Model) Export(ctx context.Context, dir string, o ExportOptions) (safetensors.DType, error) {
	dtype := m.DType
	if o.DType != "" {
		if dtype = safetensors.DType(strings.ToUpper(o.DType)); !dtype.Converts() {
			return "", fmt.Errorf("weights: dtype is %s: want f32, bf16 or f16", o.DType)
		}
	}
	return dtype, huggingface.Write(dir, huggingface.Export{
		Config: m.Config, DType: dtype, MaxShardBytes: o.ShardBytes, Files: m.Files,
		Layer: func(layer int, dst []float32) error {
			if err := m.FiniteLayer(ctx, layer, dst); err != nil {
				return err
			}
			for _, t := range m.Config.LayerTensors(layer) {
				for i, v := range dst[t.Off : t.Off+t.Len()] {
					if dtype == safetensors.F16 && (v > maxF16 || v < -maxF16) {
						return fmt.Errorf("weights: element %d of tensor %s is %v: %w for f16: export as bf16 or f32", i, t.Name, v, ErrRange)
					}
				}
			}
			if o.Progress != nil {
				o.Progress(layer+1, m.Config.Layers())
			}
			return nil
		},
	})
}

// ErrRange says that a parameter is too large for the type of an export.
var ErrRange = errors.New("too large")

// maxF16 rounds to the largest finite F16; BF16 reaches as far as F32, but for its last step.
const maxF16 = 65519.996
