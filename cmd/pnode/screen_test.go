package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// TestACurtainKeepsTheNewestLines in their order while a view has the terminal.
func TestACurtainKeepsTheNewestLines(t *testing.T) {
	var to bytes.Buffer
	c := &curtain{to: &to}
	fmt.Fprintln(c, "before")
	c.lower()
	for i := range 20_000 {
		fmt.Fprintf(c, "line %d\n", i)
	}
	if got := to.String(); got != "before\n" {
		t.Fatalf("a view was written over with %d bytes", len(got))
	}
	c.raise()
	fmt.Fprintln(c, "after")
	lines := strings.Split(strings.TrimSuffix(to.String(), "\n"), "\n")
	if n := len(lines); to.Len() > mostKept+100 || lines[0] != "before" || lines[n-1] != "after" || lines[n-2] != "line 19999" {
		t.Fatalf("%d bytes from %q to %q", to.Len(), lines[0], lines[n-2:])
	}
	var first int
	if _, err := fmt.Sscanf(lines[1], "line %d", &first); err != nil || first+len(lines)-2 != 20_000 {
		t.Errorf("the first line that is kept is %q, and %d are there", lines[1], len(lines))
	}
}
