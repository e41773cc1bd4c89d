// Package huggingface takes models in from folders in Hugging Face's layout and writes them
// out: config.json, model.safetensors (single or in shards), and the tokenizer's files.
//
// # Nouns
//
//   - Architecture: a class of Python's transformers: GPT2LMHeadModel, LlamaForCausalLM,
//     MistralForCausalLM, Qwen2ForCausalLM, or one of these without its head (GPT2Model,
//     LlamaModel, ...). config.json of each maps to a model.Config and back.
//   - Settings: what a config.json says, with notes about what was passed over.
//   - Model: an opened folder, read a layer at a time into the flat vectors of package
//     model.
//   - Export: what Write makes a folder of.
//   - Adapter, AdapterExport: low-rank adapters in the layout of Python's peft, read into the
//     vectors of a model.Config with LoRA, and written.
//
// # Configuration
//
// Every field of config.json is in one of four lists: fields that are read; fields that must have
// the one value that is supported (`scale_attn_weights` true); fields of transformers that change no
// logits (token numbers, dropout, bookkeeping); and fields of other programs that change none, which are
// passed over with a note, as is any field that is null, false or empty. Any other field is refused by
// name and value: a setting that is not known could change the mathematics. Dropout is a setting of
// training, not of the weights: a run sets its own.
//
// Context becomes the longest sequence the model takes, at most maxContext. A run may set
// less: learned positions are cut then.
//
// # Weights
//
// GPT-2's Conv1D matrices are stored [in,out] and turned into [out,in] while they are read;
// everything else lies as in the file. Names may lack the prefix of the base model. Masks
// and frequencies that older versions stored are passed over by name; any other tensor too
// many, missing, of another shape or type is an error. Values are converted to float32,
// which holds F16 and BF16 exactly, so an import followed by an export in the same type
// gives the same bytes.
//
// # Tests
//
// testdata holds what transformers and peft saved (reference.py makes it). With
// PNODE_TRANSFORMERS_PYTHON set to a Python that has them, a test also has it load what is
// written here, save it anew, and compares the logits both ways.
//
// Package cmd/pnode and the node call it. It imports package model for Config
// and package checkpoint for InNewFolder and RoomAt alone.
package huggingface
