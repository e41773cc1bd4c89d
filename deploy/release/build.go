package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"pnode/deploy/image"
)

// platform holds what a program is built for, and by which version of Go.
type platform struct{ system, architecture, toolchain string }

// program is a built one with what is published beside it.
type program struct {
	platform
	file    string // on this machine
	commit  string
	time    time.Time // of the commit, in UTC: all that is packed has it
	version string    // semantic, without the v
	modules []*debug.Module
	files   []packed // the program first
}

func (p platform) String() string { return p.system + "/" + p.architecture }

func parsePlatform(text string) (platform, error) {
	system, architecture, ok := strings.Cut(text, "/")
	if !ok || system == "" || architecture == "" {
		return platform{}, fmt.Errorf("-targets has %q: want SYSTEM/ARCHITECTURE, such as linux/amd64", text)
	}
	return platform{system: system, architecture: architecture}, nil
}

// name begins the names of a platform's files.
func (p platform) name() string { return "pnode-" + p.system + "-" + p.architecture }

// executable returns the name under which users get the program.
func (p platform) executable() string {
	if p.system == "windows" {
		return "pnode.exe"
	}
	return "pnode"
}

// release builds the program in the folder work, and describes it in the folder out.
func (p platform) release(work, out string) (program, error) {
	built := program{platform: p, file: filepath.Join(work, p.name())}
	parts, err := p.program(built.file)
	if err != nil {
		return built, err
	}
	sum, err := sumOf(built.file)
	if err != nil {
		return built, err
	}
	if why := unlikeCommit(parts[0]); why != "" {
		fmt.Fprintf(os.Stderr, "warning: %s: %s; nobody else gets these bytes. Build a release in a clean clone\n", p.name(), why)
	}
	built.describe(parts)
	text, err := os.ReadFile(built.file)
	if err != nil {
		return built, err
	}
	built.files = []packed{{name: p.executable(), mode: 0o755, text: text}}
	list, err := sbom(p.name(), sum, parts...)
	if err != nil {
		return built, err
	}
	return built, os.WriteFile(filepath.Join(out, p.name()+sbomSuffix), list, 0o644)
}

// noTime stands for the time of a commit that a program does not say. No format of archives has an earlier one.
var noTime = time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)

// describe takes what Go knows of the programs in the file.
func (b *program) describe(parts []*debug.BuildInfo) {
	b.time, b.version = noTime, "0.0.0"
	if version, ok := strings.CutPrefix(parts[0].Main.Version, "v"); ok {
		b.version = version
	}
	for _, s := range parts[0].Settings {
		switch s.Key {
		case "vcs.revision":
			b.commit = s.Value
		case "vcs.time":
			if at, err := time.Parse(time.RFC3339, s.Value); err == nil {
				b.time = at.UTC()
			}
		}
	}
	seen := map[string]bool{}
	for _, part := range parts {
		for _, m := range part.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			if !seen[m.Path] {
				seen[m.Path] = true
				b.modules = append(b.modules, m)
			}
		}
	}
	slices.SortFunc(b.modules, func(x, y *debug.Module) int { return strings.Compare(x.Path, y.Path) })
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
