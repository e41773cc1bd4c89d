package planner

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// TestVectors: random inputs have the plans whose digests are in testdata, to the byte and on every architecture.
func TestVectors(t *testing.T) {
	const path = "testdata/digests.vec"
	var out strings.Builder
	rng := rand.New(rand.NewPCG(51, 52))
	for i := range 24 {
		p, _, err := Make(t.Context(), randomInput(rng))
		if err != nil {
			fmt.Fprintf(&out, "%d none\n", i)
			continue
		}
		fmt.Fprintf(&out, "%d %x\n", i, sha256.Sum256(p.Encode()))
	}
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines, digests := strings.Split(out.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(lines), len(digests)) {
		if i >= len(lines) || i >= len(digests) || lines[i] != digests[i] {
			t.Fatalf("plans are not those of %s from line %d on (rewrite with -update):\n%s", path, i+1, out.String())
		}
	}
}
