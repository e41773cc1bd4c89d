package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// committed is the PTX in the tree.
func committed(t *testing.T, target target) string {
	t.Helper()
	packed, err := os.ReadFile(filepath.Join("..", "..", "cuda", "ptx", target.file()))
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestStamp wants the PTX in the tree to be that of the kernels in the tree. It needs no
// compiler.
func TestStamp(t *testing.T) {
	for _, target := range targets {
		if !strings.HasPrefix(committed(t, target), target.stamp()) {
			t.Errorf("%s is not of this source: go generate ./kernels/cuda", target.file())
		}
	}
}

// TestCompile compiles the kernels again where the same compiler is at hand, and wants the same
// text.
func TestCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles every kernel")
	}
	const clang = "clang-19"
	if _, err := exec.LookPath(clang); err != nil {
		t.Skip(err)
	}
	compiler, err := compilerLine(clang)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets {
		want := committed(t, target)
		if !strings.HasPrefix(want, target.stamp()+compiler) {
			t.Skipf("%s was made by another compiler than %s", target.file(), strings.TrimSpace(compiler))
		}
		got, err := target.compile(clang)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s has other text when it is compiled again: go generate ./kernels/cuda", target.file())
		}
	}
}
