package main

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// packages are the names with which errors begin that come from them: useful in a log,
// noise to who asked for something else.
var packages = []string{
	"api", "checkpoint", "config", "consensus", "cpu", "dataset", "devices", "generate", "huggingface", "infer", "kernels", "link",
	"local", "model", "node", "pipeline", "planner", "progress", "raft", "safetensors", "schedule", "shard", "source", "swarm",
	"tokenizer", "weights", "wire",
}

// sentence is an error as its reader needs it: on one line, each line once, without the
// names of packages. Only what an error of the chain itself begins with is left out, so
// that a file that is called like a package keeps its name.
func sentence(err error) string {
	if errors.Is(err, context.Canceled) { // where it was does not matter to whoever pressed Ctrl-C
		return "interrupted before it was done"
	}
	text := err.Error()
	for _, e := range chain(err, nil) {
		whole := e.Error()
		if bare := withoutPackage(whole); bare != whole {
			text = strings.Replace(text, whole, bare, 1)
		}
	}
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// chain are err and all that it wraps, outer ones first.
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
