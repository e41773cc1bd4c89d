package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// browserEnv has the arguments with which this program is started as a browser.
const browserEnv = "PNODE_TEST_BROWSER"

// through follows what a door's file says, and gives the answer.
func through(t *testing.T, file, more string) *http.Response {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`content="0; url=(http://127\.0\.0\.1:[0-9]+/[A-Z2-7]+)"`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("the file leads nowhere: %s", text)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Get(string(m[1]) + more)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

func TestADoorLeadsToThePage(t *testing.T) {
	const page = "http://127.0.0.1:9/path/#KEY"
	dir := t.TempDir()
	d, err := newDoor(page, dir)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(d.file)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode != 0o600 {
		t.Errorf("others may read the file: %v", mode)
	}
	if resp := through(t, d.file, "X"); resp.StatusCode != http.StatusNotFound || resp.Header.Get("Location") != "" {
		t.Errorf("another path: %v %v", resp.Status, resp.Header)
	}
	select {
	case <-d.used:
		t.Error("another path counts")
	default:
	}
	for range 2 { // a browser may ask again
		if resp := through(t, d.file, ""); resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != page {
			t.Errorf("got %v %v", resp.Status, resp.Header)
		}
		<-d.used
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestTheKeyIsNoArgument: what starts a browser has nothing that opens the page.
func TestTheKeyIsNoArgument(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the browser is a script for Linux")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, home := t.TempDir(), t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\n%s=\"$*\" exec %q -test.run '^TestAsBrowser$'\n", browserEnv, self)
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":/bin:/usr/bin")
	t.Setenv("DISPLAY", ":0")
	t.Setenv("SSH_CONNECTION", "")
	t.Setenv("HOME", home)
	var stderr bytes.Buffer
	const page = "http://127.0.0.1:9/path/#KEY"
	if err := (environment{stderr: &stderr}).openPage(t.Context(), page); err != nil || stderr.Len() > 0 {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestAsBrowser is the browser.
func TestAsBrowser(t *testing.T) {
	args := os.Getenv(browserEnv)
	if args == "" {
		t.Skip("started by a test")
	}
	if strings.Contains(args, "KEY") {
		t.Fatalf("started with %s", args) // the other side waits
	}
	through(t, args, "")
}
