package node

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the import rules into .golangci.yml")

// Everything between these lines of .golangci.yml follows from homes and rooms.
const (
	lintBegin = "    # Import rules: written by go test ./node -run LinterKnows -update\n"
	lintEnd   = "    # End of the import rules.\n"
)

// TestLinterKnowsTheImportRules compares the rules that editors show, those of depguard, with homes and rooms.
func TestLinterKnowsTheImportRules(t *testing.T) {
	file := filepath.Join("..", ".golangci.yml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(text), lintBegin)
	rules, after, ended := strings.Cut(rest, lintEnd)
	if !begun || !ended {
		t.Fatalf("%s lacks the lines around the import rules:\n%s%s", file, lintBegin, lintEnd)
	}
	want := depguardRules()
	switch {
	case rules == want:
	case *update:
		if err := os.WriteFile(file, []byte(before+lintBegin+want+lintEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has other import rules than node/imports_test.go: go test ./node -run LinterKnows -update", file)
	}
}

// depguardRules returns homes and rooms as settings of depguard, a rule for each.
func depguardRules() string {
	var b strings.Builder
	b.WriteString("    depguard:\n      rules:\n")
	for _, h := range homes {
		writeRule(&b, h.dependency, "**", h.dirs, h.dependency, h.reason)
	}
	for _, r := range rooms {
		writeRule(&b, r.room, "*", r.dirs, r.room+"$", r.reason) // exactly these packages
	}
	return b.String()
}

// writeRule writes that no file but tests and those in dirs imports pkg, or what is below it and has no rule of its own.
func writeRule(b *strings.Builder, name, files string, dirs []string, pkg, reason string) {
	name = strings.NewReplacer("/", "-", ".", "-").Replace(strings.Trim(name, "/"))
	fmt.Fprintf(b, "        %s:\n          files:\n            - $all\n            - \"!$test\"\n", name)
	for _, dir := range dirs {
		fmt.Fprintf(b, "            - \"!${base-path}/%s/%s\"\n", dir, files)
	}
	for i, h := range slices.DeleteFunc(slices.Clone(homes), func(h home) bool { return !strings.HasPrefix(h.dependency, pkg+"/") }) {
		if i == 0 { // has a rule of its own, and the longer name counts
			b.WriteString("          list-mode: lax\n          allow:\n")
		}
		fmt.Fprintf(b, "            - %s\n", h.dependency)
	}
	fmt.Fprintf(b, "          deny:\n            - pkg: %s\n              desc: %q\n", pkg, reason)
}
