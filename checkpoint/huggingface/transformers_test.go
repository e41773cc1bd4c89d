package huggingface

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pnode/checkpoint/safetensors"
	"pnode/pipeline/model"
)

// pythonVariable names a Python that has torch, transformers and peft.
const pythonVariable = "PNODE_TRANSFORMERS_PYTHON"

// ours are a small model of each family, by the folder it is written to; the name of one with
// another type than float32 ends in it.
func ours() map[string]model.Config {
	gpt2 := model.Config{Vocab: 47, Context: 12, Blocks: 2, Heads: 4, Channels: 16, MLP: 40}
	llama := model.Config{
		Vocab: 47, Context: 12, Blocks: 2, Heads: 4, KVHeads: 2, Channels: 16, MLP: 24, Norm: model.RMSNorm, NormEps: 1e-6,
		Activation: model.SwiGLU, Positions: model.RoPE, NoQKVBias: true, NoOutputBias: true, NoMLPBias: true, UntiedHead: true,
	}
	all := map[string]model.Config{"gpt2": gpt2, "llama": llama}
	change := func(name string, c model.Config, change func(*model.Config)) {
		change(&c)
		all[name] = c
	}
	change("gpt2-untied", gpt2, func(c *model.Config) { c.UntiedHead, c.NormEps = true, 1e-3 })
	change("llama-3-bfloat16", llama, func(c *model.Config) {
		c.RoPETheta, c.UntiedHead = 500, false
		c.RoPEScaling = model.RoPEScaling{Kind: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 8}
	})
	change("llama-linear", llama, func(c *model.Config) { c.RoPEScaling = model.RoPEScaling{Kind: "linear", Factor: 4} })
	change("mistral-float16", llama, func(c *model.Config) { c.Window = 5 })
	change("qwen2", llama, func(c *model.Config) { c.NoQKVBias, c.UntiedHead, c.RoPETheta = false, false, 1e6 })
	return all
}

// ourAdapters are adapters of some of them, by the base's folder.
var ourAdapters = map[string]model.LoRA{
	"gpt2":  {Rank: 3, Alpha: 5, Targets: "c_attn,mlp.c_proj"},
	"llama": {Rank: 2, Alpha: 6, Targets: "down_proj,layers.1.self_attn.q_proj,lm_head,v_proj"},
}

// drawn gives parameters that all matter to the logits.
func drawn(c model.Config) func(layer int, dst []float32) error {
	return func(layer int, dst []float32) error {
		c.InitLayer(layer, 3, dst)
		for _, t := range c.LayerTensors(layer) {
			for i := range t.Len() {
				if v := &dst[t.Off+i]; t.Decay { // of deviation 0.02, or zero
					*v = 12**v + float32(math.Sin(float64(i)))/10
				} else {
					*v += float32(math.Sin(float64(i))) / 4
				}
			}
		}
		if layer == c.Layers()-1 && c.Tied() {
			embedding := make([]float32, c.LayerLen(0))
			if err := drawn(c)(0, embedding); err != nil {
				return err
			}
			copy(dst[len(dst)-c.TiedLen():], embedding)
		}
		return nil
	}
}

// typeIn is the type of the weights in a folder of that name.
func typeIn(folder string) safetensors.DType {
	for name, dtype := range map[string]safetensors.DType{"bfloat16": safetensors.BF16, "float16": safetensors.F16} {
		if strings.HasSuffix(folder, "-"+name) {
			return dtype
		}
	}
	return safetensors.F32
}

// writeOurs makes the folders for Python, each with the tokens to compute logits of.
func writeOurs(t *testing.T, dir string) (folders []string) {
	t.Helper()
	write := func(folder string, err error) {
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, "tokens.json"), []byte("[3,17,0,45,22,8,30,46,11,5,29,40]"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		folders = append(folders, folder)
	}
	for name, c := range ours() {
		folder := filepath.Join(dir, name)
		write(folder, Write(folder, Export{Config: c, Layer: drawn(c), DType: typeIn(folder), MaxShardBytes: 10_000}))
		if l, ok := ourAdapters[name]; ok {
			c.LoRA = l
			write(folder+adapterEnd, WriteAdapter(folder+adapterEnd, AdapterExport{Config: c, Layer: drawn(c), Base: name}))
		}
	}
	slices.Sort(folders)
	return folders
}

const adapterEnd = "-adapter"

// TestTransformersLoadsOursAndWeLoadIts: a Python with transformers and peft computes the same
// logits from what is written here, and from what it writes the same are computed here.
func TestTransformersLoadsOursAndWeLoadIts(t *testing.T) {
	python := os.Getenv(pythonVariable)
	if python == "" {
		t.Skip("set " + pythonVariable + " to a Python that has torch, transformers and peft")
	}
	dir := t.TempDir()
	args := append([]string{filepath.Join("testdata", "roundtrip.py")}, writeOurs(t, dir)...)
	if out, err := exec.CommandContext(t.Context(), python, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", python, err, out)
	}
	for name, c := range ours() {
		for _, whose := range []string{"", "-theirs"} {
			m, err := Open(filepath.Join(dir, name+whose))
			if err != nil {
				t.Fatal(err)
			}
			if m.Config().Resolved() != c.Resolved() || m.DType() != typeIn(name) {
				t.Errorf("%s: %s %+v became %s %+v", m.dir, typeIn(name), c.Resolved(), m.DType(), m.Config().Resolved())
			}
			compareLogits(t, m.dir, m.Config(), m.Layer)
			if whose == "" && ourAdapters[name].On() {
				compareAdapters(t, m, m.dir+adapterEnd)
				compareAdapters(t, m, m.dir+adapterEnd+"-theirs")
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func compareAdapters(t *testing.T, base *Model, dir string) {
	t.Helper()
	a, err := OpenAdapter(dir, base.Config())
	if err != nil {
		t.Fatal(err)
	}
	compareLogits(t, dir, a.Config(), whole(base, a))
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
