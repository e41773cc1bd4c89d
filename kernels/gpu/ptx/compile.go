package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"strings"

	"pnode/kernels/gpu"
)

// file is the name of the compressed PTX.
func (t target) file() string { return t.arch + ".ptx.gz" }

func (t target) flags() []string {
	return []string{
		"-x", "cl", "-cl-std=CL1.2", "-cl-no-stdinc", "-cl-mad-enable", "--target=nvptx64-nvidia-cuda", "-nogpulib", "-O3",
		"-march=" + t.arch, "-Xclang", "-target-feature", "-Xclang", "+" + t.version, "-Wall", "-Werror", "-S", "-o", "-", "-",
	}
}

func (t target) source() string { return library + gpu.Source(t.Geometry) }

// stamp is the first line of a PTX file that says what it was compiled from.
func (t target) stamp() string {
	sum := sha256.Sum256([]byte(strings.Join(t.flags(), " ") + "\n" + t.source()))
	return fmt.Sprintf("// source and flags: sha256 %x\n", sum)
}

// compilerLine is the second line of a PTX file.
func compilerLine(clang string) (string, error) {
	said, err := exec.Command(clang, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", clang, err)
	}
	version, _, _ := strings.Cut(string(said), "\n")
	return "// compiler: " + version + "\n", nil
}

// compile gives PTX after two lines about its origin.
func (t target) compile(clang string) ([]byte, error) {
	compiler, err := compilerLine(clang)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(clang, t.flags()...)
	cmd.Stdin = strings.NewReader(t.source())
	var said bytes.Buffer
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w:\n%s", clang, err, said.Bytes())
	}
	if at := bytes.Index(text, []byte("\n.extern ")); at >= 0 {
		line, _, _ := bytes.Cut(text[at+1:], []byte("\n"))
		return nil, fmt.Errorf("the PTX needs a function from elsewhere: %s", line)
	}
	return append([]byte(t.stamp()+compiler), text...), nil
}

// pack compresses; the same bytes again for the same text.
func pack(text []byte) []byte {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // the level is valid, and memory takes all
	}
	return packed.Bytes()
}
