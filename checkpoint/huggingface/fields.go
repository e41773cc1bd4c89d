package huggingface

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pnode/pipeline/wire"
)

// Errors of this package.
var (
	// ErrUnsupported: the model has something that this program does not do.
	ErrUnsupported = errors.New("not supported")
	// ErrFormat: a file is not what it should be.
	ErrFormat = errors.New("not a valid model folder")
)

// fields is a file of settings while it is read: what has been asked for is taken out, what is
// left at the end is unknown. The first error is kept.
type fields struct {
	file string
	path string // in front of names: `rope_scaling.`
	left map[string]json.RawMessage
	err  error
}

func parseFields(file string, text []byte) (*fields, error) {
	f := &fields{file: file}
	if err := json.Unmarshal(text, &f.left); err != nil || f.left == nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFormat, file, errors.Join(err, errors.New("a JSON object is needed")))
	}
	return f, nil
}

// take removes a field and returns its value, nil if it is absent or null.
func (f *fields) take(name string) json.RawMessage {
	value := f.left[name]
	delete(f.left, name)
	if string(value) == "null" {
		return nil
	}
	return value
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// maxQuoted is how much of a refused value an error repeats.
const maxQuoted = 100

func (f *fields) refuse(name string, value json.RawMessage, accepted string) {
	f.misfit(ErrUnsupported, name, value, accepted)
}

func (f *fields) misfit(kind error, name string, value json.RawMessage, accepted string) {
	f.fail(fmt.Errorf("%w: %s: %s%s is %s; %s", kind, f.file, f.path, name, clip(value), accepted))
}

// clip shortens a value for a sentence.
func clip(value json.RawMessage) string {
	if len(value) <= maxQuoted {
		return string(value)
	}
	return wire.Clip(string(value), maxQuoted) + "..."
}

// read decodes a field into a T, or gives otherwise where it is absent or null.
func read[T any](f *fields, name string, otherwise T) T {
	value := f.take(name)
	if value == nil {
		return otherwise
	}
	var v T
	if err := json.Unmarshal(value, &v); err != nil {
		f.misfit(ErrFormat, name, value, "want "+kind(v))
	}
	return v
}

// kind names the JSON values that decode into v.
func kind(v any) string {
	switch v.(type) {
	case int:
		return "a whole number"
	case float64:
		return "a number"
	case bool:
		return "true or false"
	case string:
		return "a text"
	}
	return "a list of texts"
}

// number is read for sizes and factors: where one is given it is above 0, which itself
// would stand for a default.
func number[T int | float64](f *fields, name string, otherwise T) T {
	value := f.left[name]
	v := read(f, name, otherwise)
	if value != nil && string(value) != "null" && v <= 0 {
		f.misfit(ErrUnsupported, name, value, "want more than 0")
	}
	return v
}

// need is number for a field that must be there.
func need[T int | float64](f *fields, name string) T {
	if value, ok := f.left[name]; !ok || string(value) == "null" {
		f.fail(fmt.Errorf("%w: %s lacks %s%s", ErrFormat, f.file, f.path, name))
		return 0
	}
	return number[T](f, name, 0)
}

// alone refuses a field beside another that says the same.
func (f *fields) alone(name, other string) {
	if value := f.take(name); value != nil {
		f.refuse(name, value, "leave it out, or "+other)
	}
}

// only refuses a field unless it is absent, null or one of the accepted values.
func only[T comparable](f *fields, name string, accepted ...T) {
	value := f.take(name)
	if value == nil {
		return
	}
	var v T
	if err := json.Unmarshal(value, &v); err != nil || !slices.Contains(accepted, v) {
		list := make([]string, len(accepted))
		for i, a := range accepted {
			list[i] = fmt.Sprint(a)
		}
		f.refuse(name, value, "accepted: "+strings.Join(list, ", "))
	}
}

// harmless are fields that change no logits.
var harmless = []string{
	// Bookkeeping.
	"_name_or_path", "_commit_hash", "transformers_version", "torch_dtype", "dtype", "use_cache",
	"_attn_implementation_autoset", "gradient_checkpointing", "output_attentions", "output_hidden_states",
	"return_dict", "tokenizer_class", "task_specific_params", "id2label", "label2id", "problem_type",
	// Numbers and texts of tokens.
	"bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "cls_token_id",
	"decoder_start_token_id", "prefix",
	// Training.
	"initializer_range", "attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout",
	// How the same products are cut into pieces.
	"pretraining_tp", "chunk_size_feed_forward",
	// Heads for other tasks.
	"summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
	// Defaults of text generation that older versions kept here.
	"max_length", "min_length", "do_sample", "temperature", "top_k", "top_p", "typical_p", "num_beams",
	"num_beam_groups", "num_return_sequences", "repetition_penalty", "length_penalty", "diversity_penalty",
	"no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "early_stopping", "bad_words_ids",
	"forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty", "suppress_tokens",
	"begin_suppress_tokens", "remove_invalid_values", "output_scores", "return_dict_in_generate",
}

// noted are fields that other programs leave in a config.json. They change no logits of the classes
// that are read here, but a reader may wonder about them.
var noted = []string{
	"is_llama_config", "auto_map", "_attn_implementation", "attn_implementation", "transformers.js_config",
	"unsloth_fixed", "unsloth_version", "model_max_length", "tokenizer_model_max_length", "use_bfloat16", "use_flash_attn",
}

// pass passes over the named fields.
func (f *fields) pass(names ...string) {
	for _, name := range names {
		delete(f.left, name)
	}
}

// done refuses the fields that nobody asked for.
func (f *fields) done() error {
	for _, name := range slices.Sorted(maps.Keys(f.left)) {
		f.refuse(name, f.left[name], "this field is not known and could change what the model computes")
	}
	return f.err
}

// isOff reports whether a value switches its field off: null, false, and empty texts, lists, objects.
func isOff(value json.RawMessage) bool {
	return slices.Contains([]string{"null", "false", `""`, "[]", "{}"}, string(value))
}

// formatJSON writes an object as transformers does: sorted, indented by two.
func formatJSON(object map[string]any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(object)
	return b.Bytes(), err
}
