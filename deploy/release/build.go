package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"

	"pnode/deploy/image"
)

// platform holds what a program is built for, and by which version of Go.
type platform struct{ system, architecture, toolchain string }

func parsePlatform(text string) (platform, error) {
	system, architecture, ok := strings.Cut(text, "/")
	if !ok || system == "" || architecture == "" {
		return platform{}, fmt.Errorf("-targets has %q: want SYSTEM/ARCHITECTURE, such as linux/amd64", text)
	}
	return platform{system: system, architecture: architecture}, nil
}

// name returns the file name of the program.
func (p platform) name() string {
	name := "pnode-" + p.system + "-" + p.architecture
	if p.system == "windows" {
		name += ".exe"
	}
	return name
}

// release builds the program, and describes it in the file beside it.
func (p platform) release(file string) error {
	parts, err := p.program(file)
	if err != nil {
		return err
	}
	sum, err := sumOf(file)
	if err != nil {
		return err
	}
	if why := unlikeCommit(parts[0]); why != "" {
		fmt.Fprintf(os.Stderr, "warning: %s: %s; nobody else gets these bytes. Build a release in a clean clone\n", p.name(), why)
	}
	text, err := sbom(p.name(), sum, parts...)
	if err != nil {
		return err
	}
	return os.WriteFile(file+sbomSuffix, text, 0o644)
}

// unlikeCommit returns why a program is not what its commit gives; empty if it is.
func unlikeCommit(info *debug.BuildInfo) string {
	why := "it does not say its commit"
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.modified" && s.Value == "true":
			return "it is built with changes that are in no commit"
		case s.Key == "vcs.revision":
			why = ""
		}
	}
	return why
}

// program builds a file, and returns what Go knows of each program in it.
func (p platform) program(file string) ([]*debug.BuildInfo, error) {
	if p.system != "linux" {
		info, err := p.build(file)
		return []*debug.BuildInfo{info}, err
	}
	opening := file + ".opening"
	defer os.Remove(opening)
	second, err := p.build(opening)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(opening)
	if err != nil {
		return nil, err
	}
	first, err := p.build(file, "-tags", "static")
	if err != nil {
		return nil, err
	}
	static, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return []*debug.BuildInfo{first, second}, errors.Join(image.Append(static, program), static.Close())
}

// build runs `go build` so that nothing but the commit and the version of Go has a say in the
// bytes: no paths of this machine, no settings of its user, no C compiler.
func (p platform) build(file string, more ...string) (*debug.BuildInfo, error) {
	args := append([]string{"build", "-trimpath", "-buildvcs=auto", "-ldflags=-s -w", "-o", file}, more...)
	cmd := exec.Command("go", append(args, "./cmd/pnode")...)
	cmd.Env = append(
		os.Environ(), "CGO_ENABLED=0", "GOOS="+p.system, "GOARCH="+p.architecture,
		"GOTOOLCHAIN="+p.toolchain, "GOFLAGS=-mod=readonly", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off",
	)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return buildinfo.ReadFile(file)
}

// pinnedToolchain returns the version of Go in go.mod, with which everyone builds.
func pinnedToolchain() (string, error) {
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		return "", fmt.Errorf("read go.mod: %w; run it in the repository", err)
	}
	var mod struct{ Toolchain string }
	if err := json.Unmarshal(out, &mod); err != nil {
		return "", fmt.Errorf("read go.mod: %w", err)
	}
	if mod.Toolchain == "" {
		return "", errors.New("go.mod has no toolchain line: add the version of Go to build with")
	}
	return mod.Toolchain, nil
}
