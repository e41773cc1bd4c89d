package huggingface

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"pnode/pipeline/model"
)

// harmlessAdapter are fields of adapter_config.json that change no product.
var harmlessAdapter = []string{
	"auto_mapping", "base_model_name_or_path", "inference_mode", "peft_version", "revision", "task_type",
	"lora_dropout",                       // of training
	"fan_in_fan_out",                     // how the base matrix lies
	"megatron_core", "qalora_group_size", // of methods that have switches of their own
}

// parseAdapterConfig reads the text of an adapter_config.json. A field that is neither
// known nor switched off is refused by name. The targets are not held against a model yet.
func parseAdapterConfig(text []byte) (model.LoRA, error) {
	f, err := parseFields(adapterFile, text)
	if err != nil {
		return model.LoRA{}, err
	}
	l := model.LoRA{Rank: need[int](f, "r"), Alpha: need[float64](f, "lora_alpha"), Targets: targets(f)}
	only(f, "peft_type", "LORA")
	only(f, "bias", "none")
	const initField = "init_lora_weights"
	if value, there := f.left[initField]; there && !slices.Contains(keepBase, string(value)) {
		f.refuse(initField, value, "accepted: true, false, gaussian, eva, orthogonal; "+
			"with this one the base model's matrices were changed too: convert the adapter with PEFT's "+
			"save_pretrained(..., path_initial_model_for_weight_conversion=...), or merge it there and import the whole model")
	}
	f.pass(initField)
	f.pass(harmlessAdapter...)
	maps.DeleteFunc(f.left, func(_ string, value json.RawMessage) bool { return isOff(value) })
	return l, f.done()
}

// keepBase are the rules of init_lora_weights under which the base model stays as it is. The others
// (pissa, olora, corda, loftq) also change the base's matrices, which the adapter's folder lacks.
var keepBase = []string{"null", "true", "false", `"gaussian"`, `"eva"`, `"orthogonal"`}

// targets joins the names of the adapted layers, in order; full ones lose the prefix of the
// base model, which names in package model do not have.
func targets(f *fields) string {
	value, names := f.take("target_modules"), []string(nil)
	comma := func(name string) bool { return strings.Contains(name, ",") }
	if json.Unmarshal(value, &names) != nil || slices.ContainsFunc(names, comma) {
		f.refuse("target_modules", value, "accepted: a list of names")
	}
	for i, name := range names {
		for _, of := range families() {
			name = strings.TrimPrefix(name, of.prefix)
		}
		names[i] = name
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ",")
}

// formatAdapterConfig leaves out what is switched off, which every version reads.
func (e AdapterExport) formatAdapterConfig(of family) ([]byte, error) {
	return formatJSON(map[string]any{
		"peft_type":               "LORA",
		"task_type":               "CAUSAL_LM",
		"base_model_name_or_path": e.Base,
		"r":                       e.Config.LoRA.Rank,
		"lora_alpha":              float(e.Config.LoRA.Alpha),
		"lora_dropout":            float(0),
		"target_modules":          strings.Split(e.Config.LoRA.Targets, ","),
		"bias":                    "none",
		"fan_in_fan_out":          of.architecture == GPT2,
		"inference_mode":          true,
	})
}
