package api

import (
	"slices"
	"strings"
)

// packages lists the names with which errors of packages begin: useful in a log, noise on a terminal.
var packages = []string{
	"admission", "api", "chaos", "checkpoint", "checkpointer", "config", "consensus", "cpu", "dataset", "devices", "generate", "generation", "gossip", "hardware",
	"huggingface", "infer", "ingest", "kernels", "leader", "ledger", "link", "local", "model", "monitor", "node", "pipeline", "planner", "progress",
	"raft", "safetensors", "schedule", "shard", "source", "swarm", "tokenizer", "weights", "wire",
}

// Plain returns an error's text for people, without the names of packages. It drops only what an error of the chain begins with: a file may
// have such a name too.
func Plain(err error) string {
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
