// Package config holds the settings of a node and of the run that it starts: their
// defaults, their file form (run.yaml), their checks, and the folders where runs live.
//
// # Nouns
//
//   - Config: every setting, one field each; the zero value is not valid, Default is.
//   - Count: a number, or "auto" for letting the planner choose.
//   - Bytes, Speed, Rate, Span, Share: 16MB, 8TFLOP/s, 100Mbit/s, 40ms, 0.5%.
//   - Cluster: an emulated cluster's devices and links, a file of its own; Emulation describes
//     one node of it.
//
// The way of a setting: Default, then the file (Load), then the flags given explicitly
// (Merge), then Validate, then RunSpec, on which the nodes of a run agree.
//
// The package refuses unknown keys, with the line and the nearest key, and values out of
// range, with what is accepted. It reads files and makes run folders; it knows nothing of
// flags, which belong to cmd/pnode. cmd/pnode, node and node/local call it. It is the only
// importer of YAML.
package config
