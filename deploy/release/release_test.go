package main

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// TestSums: the file is what sha256sum makes of these bytes.
func TestSums(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b": "abc", "a.cdx.json": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeSums(dir); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, sumsFile))
	want := "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a.cdx.json\n" +
		"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  b\n"
	if err != nil || string(got) != want {
		t.Errorf("got %v\n%swant\n%s", err, got, want)
	}
}

// TestReleaseRefusesAFullFolder: what lies there would be published with the rest.
func TestReleaseRefusesAFullFolder(t *testing.T) {
	dir := t.TempDir()
	if err := emptyFolder(dir); err != nil {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "id_rsa"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := release(dir, []string{"linux/amd64"}); err == nil || !strings.Contains(err.Error(), "id_rsa") {
		t.Errorf("a folder with a file: %v", err)
	}
	for _, target := range []string{"linux", "/amd64", "linux/"} {
		if _, err := parsePlatform(target); err == nil {
			t.Errorf("-targets %q was accepted", target)
		}
	}
}

// TestUnlikeCommit: whoever builds with changes, or without history, is told.
func TestUnlikeCommit(t *testing.T) {
	commit, changed := debug.BuildSetting{Key: "vcs.revision", Value: "0123"}, debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for want, settings := range map[string][]debug.BuildSetting{
		"": {commit, {Key: "vcs.modified", Value: "false"}}, "in no commit": {commit, changed}, "does not say": nil,
	} {
		if got := unlikeCommit(&debug.BuildInfo{Settings: settings}); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("with %v: %q, want %q", settings, got, want)
		}
	}
}

// TestToolchainIsPinned: everyone builds with the version of Go in go.mod, and CI's is not older.
func TestToolchainIsPinned(t *testing.T) {
	got, err := pinnedToolchain()
	if err != nil || !strings.HasPrefix(got, "go1.") || strings.Count(got, ".") != 2 {
		t.Errorf("the toolchain is %q, %v: want one with all three numbers, such as go1.26.8", got, err)
	}
	t.Logf("go.mod has %s, this is %s", got, runtime.Version())
}
