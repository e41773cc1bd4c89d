package main

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// packages lists the names with which errors of packages begin: useful in a log, noise on a terminal.
var packages = []string{
	"admission", "api", "checkpoint", "checkpointer", "config", "consensus", "cpu", "dataset", "devices", "generate", "gossip", "hardware",
	"huggingface", "infer", "ingest", "kernels", "leader", "link", "local", "model", "monitor", "node", "pipeline", "planner", "progress",
	"raft", "safetensors", "schedule", "shard", "source", "swarm", "tokenizer", "weights", "wire",
}

// sentence returns an error for people: on one line, each of its lines once, without the names of
// packages. It drops only what an error of the chain begins with: a file may have such a name too.
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
