package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	out := flag.String("out", "dist", "`FOLDER` for the files, new or empty")
	targets := flag.String("targets", "linux/amd64,linux/arm64,darwin/arm64,windows/amd64", "`LIST` of platforms")
	flag.Parse()
	if err := release(*out, strings.Split(*targets, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func release(out string, targets []string) error {
	if err := emptyFolder(out); err != nil {
		return err
	}
	toolchain, err := pinnedToolchain()
	if err != nil {
		return err
	}
	for _, t := range targets {
		p, err := parsePlatform(t)
		if err != nil {
			return err
		}
		p.toolchain = toolchain
		file := filepath.Join(out, p.name())
		if err := p.release(file); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		fmt.Printf("%s\t%d bytes\n", file, info.Size())
	}
	return writeSums(out)
}

// emptyFolder makes a folder, or takes an empty one: whatever lies in it gets a checksum and is published.
func emptyFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("-out is %s, which holds %s: name a new or an empty folder", dir, entries[0].Name())
	}
	return os.MkdirAll(dir, 0o755)
}
