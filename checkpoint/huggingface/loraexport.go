package huggingface

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"pnode/checkpoint/safetensors"
	"pnode/pipeline/model"
)

// harmlessAdapter are fields of adapter_config.json that change no product.
var harmlessAdapter = []string{
	"auto_mapping", "base_model_name_or_path", "inference_mode", "peft_version", "revision", "task_type",
	"init_lora_weights", "lora_dropout", // of training
	"fan_in_fan_out",                     // how the base matrix lies
	"megatron_core", "qalora_group_size", // of methods that have switches of their own
}

// ParseAdapterConfig reads the text of an adapter_config.json. A field that is neither
// known nor switched off is refused by name.
func ParseAdapterConfig(text []byte) (LoRA, error) {
	f, err := parseFields(adapterFile, text)
	if err != nil {
		return LoRA{}, err
	}
	l := LoRA{Rank: need[int](f, "r"), Alpha: need[float64](f, "lora_alpha")}
	only(f, "peft_type", "LORA")
	only(f, "bias", "none")
	targets := f.take("target_modules")
	if json.Unmarshal(targets, &l.Targets) != nil {
		f.refuse("target_modules", targets, "accepted: a list of names")
	}
	slices.Sort(l.Targets)
	f.dropOff()
	return l, f.done(harmlessAdapter...)
}

// formatAdapterConfig leaves out what is switched off, which every version reads.
func (e AdapterExport) formatAdapterConfig(of family) ([]byte, error) {
	return formatJSON(map[string]any{
		"peft_type":               "LORA",
		"task_type":               "CAUSAL_LM",
		"base_model_name_or_path": e.Base,
		"r":                       e.LoRA.Rank,
		"lora_alpha":              float(e.LoRA.Alpha),
		"lora_dropout":            float(0),
		"target_modules":          e.LoRA.Targets,
		"bias":                    "none",
		"fan_in_fan_out":          of.architecture == GPT2,
		"inference_mode":          true,
	})
}

func (e AdapterExport) fill(dir string) error {
	of, err := familyOf(e.Config)
	if err != nil {
		return err
	}
	config, err := e.formatAdapterConfig(of)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, adapterFile), config, 0o644); err != nil {
		return err
	}
	var adapted []model.Tensor
	var tensors []safetensors.Tensor
	for layer := range e.Config.Layers() {
		for _, t := range e.LoRA.Adapted(e.Config, layer) {
			down, up := of.adapterNames(t)
			adapted = append(adapted, t)
			tensors = append(tensors,
				safetensors.Tensor{Name: down, DType: safetensors.F32, Shape: []int{e.LoRA.Rank, t.Shape[1]}},
				safetensors.Tensor{Name: up, DType: safetensors.F32, Shape: []int{t.Shape[0], e.LoRA.Rank}})
		}
	}
	w, err := safetensors.Create(filepath.Join(dir, adapterBase+".safetensors"), tensors, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	for _, t := range adapted {
		if err := e.writePair(w, of, t); err != nil {
			return errors.Join(err, w.Discard())
		}
	}
	return w.Commit()
}

func (e AdapterExport) writePair(w *safetensors.Writer, of family, t model.Tensor) error {
	down, up, err := e.Pair(t)
	if err != nil {
		return fmt.Errorf("%s: %w", t.Name, err)
	}
	downName, upName := of.adapterNames(t)
	return errors.Join(w.Append(downName, down), w.Append(upName, up))
}
