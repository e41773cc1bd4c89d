package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// packed is a file as users get it.
type packed struct {
	name string // below the folder of the archive, with slashes
	mode os.FileMode
	text []byte
}

// Folders of an archive, which packages put elsewhere.
const (
	manFolder        = "man/man1"
	completionFolder = "completions"
	licenseFile      = "LICENSE"
	thirdPartyFile   = "THIRD-PARTY-LICENSES"
)

// installer is the script that downloads an archive and installs it.
const installer = "install.sh"

// completions names the scripts as each shell looks for them.
var completions = map[string]string{"bash": "pnode", "zsh": "_pnode", "fish": "pnode.fish"}

// writeManual has a program for this machine write its manual pages and completions: they are the same for every platform.
func writeManual(work, toolchain string) ([]packed, error) {
	here := platform{runtime.GOOS, runtime.GOARCH, toolchain}
	tool := filepath.Join(work, "manual-"+here.executable())
	info, err := here.build(tool, "-tags", "man")
	if err != nil {
		return nil, err
	}
	var of program
	of.describe([]*debug.BuildInfo{info})
	pages := filepath.Join(work, "man")
	run := func(args ...string) ([]byte, error) {
		cmd := exec.Command(tool, args...)
		cmd.Env = append(os.Environ(), "TZ=UTC", fmt.Sprintf("SOURCE_DATE_EPOCH=%d", of.time.Unix()))
		cmd.Stderr = os.Stderr
		return cmd.Output()
	}
	if _, err := run("man", pages); err != nil {
		return nil, fmt.Errorf("manual pages: %w", err)
	}
	entries, err := os.ReadDir(pages) // sorted by name
	if err != nil {
		return nil, err
	}
	var manual []packed
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(pages, e.Name()))
		if err != nil {
			return nil, err
		}
		manual = append(manual, packed{path.Join(manFolder, e.Name()), 0o644, text})
	}
	for shell, name := range completions {
		text, err := run("completion", shell)
		if err != nil {
			return nil, fmt.Errorf("completions for %s: %w", shell, err)
		}
		manual = append(manual, packed{path.Join(completionFolder, name), 0o644, text})
	}
	slices.SortFunc(manual, func(x, y packed) int { return strings.Compare(x.name, y.name) })
	return manual, nil
}

// texts returns what stands beside the program in an archive.
func (b program) texts(manual []packed) ([]packed, error) {
	texts := slices.Clone(manual)
	for _, name := range []string{licenseFile, "README.md", "CHANGELOG.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		texts = append(texts, packed{name, 0o644, text})
	}
	theirs, err := b.thirdParty()
	if err != nil {
		return nil, err
	}
	return append(texts, packed{thirdPartyFile, 0o644, theirs}), nil
}

// thirdParty returns the licenses of Go and of every module in the program, which whoever passes it on has to pass on, too.
func (b program) thirdParty() ([]byte, error) {
	goroot, err := goOutput("env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	add := func(name, dir string) error {
		licenses, err := licensesIn(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(&text, "==== %s\n\n%s\n", name, licenses)
		return nil
	}
	if err := add("Go, "+b.toolchain, goroot); err != nil {
		return nil, err
	}
	for _, m := range b.modules {
		dir, err := goOutput("list", "-mod=readonly", "-m", "-f", "{{.Dir}}", m.Path)
		if err != nil {
			return nil, err
		}
		if err := add(m.Path+" "+m.Version, dir); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// licensesIn returns the texts of all licenses and notices in a module's folder; a module without any cannot be passed on.
func licensesIn(dir string) ([]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []byte
	licensed := false
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		license := strings.HasPrefix(name, "LICENSE") || strings.HasPrefix(name, "LICENCE") || strings.HasPrefix(name, "COPYING")
		if e.IsDir() || !license && !strings.HasPrefix(name, "NOTICE") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		licensed = licensed || license
		all = append(append(all, bytes.TrimSpace(text)...), "\n\n"...)
	}
	if !licensed {
		return nil, fmt.Errorf("%s holds no LICENSE or COPYING: a module without a license cannot be part of a release", dir)
	}
	return all, nil
}

func goOutput(args ...string) (string, error) {
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
