package plain

import (
	"slices"
	"strings"
)

// packages lists the names with which errors of packages begin: useful in a log, noise on a terminal.
var packages = []string{
	"admission", "api", "bench", "chaos", "checkpoint", "checkpointer", "collective", "comparison", "config", "conform", "consensus", "corpus", "cpu",
	"cuda", "dataset", "decoding", "departures", "devices", "draw", "elastic", "emulate", "export", "gather", "generate", "generation", "gossip", "growth", "hardware", "hearsay",
	"hub", "huggingface", "infer", "ingest", "inventory", "kernels", "leader", "ledger", "link", "listening", "local", "losses", "meeting", "metrics", "mlflow", "model", "monitor", "mux", "nanogpt", "netlab",
	"node", "nvml", "opencl", "otlp", "outer", "outersteps", "partition", "pipeline", "planner", "progress", "qrcode", "raft", "recompute", "replay", "replayer", "safetensors", "schedule", "screen", "seals", "sensors",
	"shard", "share", "simulate", "slowlines", "source", "swarm", "textsamples", "tokenizer", "websocket", "weights", "wire", "witness",
}

// Text returns an error's text for people, without the names of packages. It drops only what an error of the chain begins with: a file may
// have such a name too.
func Text(err error) string {
	text, last := err.Error(), ""
	for _, e := range chain(err, nil) {
		whole := e.Error()
		if strings.HasPrefix(last, whole) { // its beginning is gone already
			continue
		}
		if bare := withoutPackage(whole); bare != whole {
			text, last = strings.Replace(text, whole, bare, 1), whole
		}
	}
	return text
}

// chain returns err and every error that it wraps, outer ones first.
func chain(err error, before []error) []error {
	before = append(before, err)
	switch e := err.(type) { //nolint:errorlint // the wrapping itself is looked at
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return chain(inner, before)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			before = chain(inner, before)
		}
	}
	return before
}

func withoutPackage(text string) string {
	for {
		name, rest, ok := strings.Cut(text, ": ")
		if !ok || !slices.Contains(packages, name) {
			return text
		}
		text = rest
	}
}
