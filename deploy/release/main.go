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
	var platforms []platform
	for _, t := range targets {
		p, err := parsePlatform(t)
		if err != nil {
			return err
		}
		platforms = append(platforms, p)
	}
	work, err := os.MkdirTemp("", "pnode-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := publish(out, work, platforms); err != nil {
		return err
	}
	if err := copyFile(filepath.Join("deploy", "release", installer), filepath.Join(out, installer), 0o755); err != nil {
		return err
	}
	if err := writeSums(out); err != nil {
		return err
	}
	return printSizes(out)
}

// publish builds every platform's program in the folder work, and puts into out what users get of it.
func publish(out, work string, platforms []platform) error {
	toolchain, err := pinnedToolchain()
	if err != nil {
		return err
	}
	manual, err := writeManual(work, toolchain)
	if err != nil {
		return err
	}
	var built []program
	for _, p := range platforms {
		p.toolchain = toolchain
		one, err := p.release(work, out)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		texts, err := one.texts(manual)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		one.files = append(one.files, texts...)
		if err := one.archive(out); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		if p.system != "linux" {
			continue
		}
		if err := one.packages(out); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		built = append(built, one)
	}
	if len(built) == 0 {
		return nil
	}
	return writeContainer(filepath.Join(out, containerFile), built)
}

// emptyFolder makes a folder, or takes an empty one: whatever lies in it gets a checksum and is published.
func emptyFolder(dir string) error {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("-out is %s, which holds %s: name a new or an empty folder", dir, entries[0].Name())
	}
	return os.MkdirAll(dir, 0o755)
}

func copyFile(from, to string, mode os.FileMode) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, mode)
}

func printSizes(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Printf("%12d bytes  %s\n", info.Size(), filepath.Join(dir, e.Name()))
	}
	return nil
}
