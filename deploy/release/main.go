// Command release builds the files that users get, one for each platform:
//
//	go run ./deploy/release -out dist
//
// A file for Linux is a static program followed by one that opens drivers, see package image; for
// other systems it is the output of `go build`.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"pnode/deploy/image"
)

func main() {
	out := flag.String("out", "dist", "`FOLDER` for the files")
	targets := flag.String("targets", "linux/amd64,linux/arm64,darwin/arm64,windows/amd64", "`LIST` of platforms")
	flag.Parse()
	if err := release(*out, strings.Split(*targets, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func release(out string, targets []string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, t := range targets {
		system, architecture, ok := strings.Cut(t, "/")
		if !ok {
			return fmt.Errorf("-targets has %q: want SYSTEM/ARCHITECTURE, such as linux/amd64", t)
		}
		file := filepath.Join(out, "pnode-"+system+"-"+architecture)
		if system == "windows" {
			file += ".exe"
		}
		if err := (platform{system, architecture}).release(file); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		fmt.Printf("%s\t%d bytes\n", file, info.Size())
	}
	return nil
}

type platform struct{ system, architecture string }

func (p platform) release(file string) error {
	if p.system != "linux" {
		return p.build(file)
	}
	opening := file + ".opening"
	defer os.Remove(opening)
	if err := p.build(opening); err != nil {
		return err
	}
	program, err := os.ReadFile(opening)
	if err != nil {
		return err
	}
	if err := p.build(file, "-tags", "static"); err != nil {
		return err
	}
	static, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := image.Append(static, program); err != nil {
		static.Close()
		return err
	}
	return static.Close()
}

func (p platform) build(file string, more ...string) error {
	args := append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", file}, more...)
	cmd := exec.Command("go", append(args, "./cmd/pnode")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.system, "GOARCH="+p.architecture)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}
