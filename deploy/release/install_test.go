package main

import (
	"bytes"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// realRelease is one to install, besides the small one that the test makes.
var realRelease = flag.String("release", "", "`FOLDER` of a release to install")

// smallProgram says what it was asked.
const smallProgram = "#!/bin/sh\necho small $1\n"

// smallRelease makes a release for this machine whose program is a script.
func smallRelease(t *testing.T, script string) (dir, archive string) {
	t.Helper()
	dir = t.TempDir()
	b := program{platform: platform{system: runtime.GOOS, architecture: runtime.GOARCH}, time: noTime, files: []packed{
		{"pnode", 0o755, []byte(script)},
		{manFolder + "/pnode.1", 0o644, []byte(".TH PNODE 1\n")},
		{licenseFile, 0o644, []byte("license\n")},
		{thirdPartyFile, 0o644, []byte("licenses\n")},
	}}
	for _, name := range completions {
		b.files = append(b.files, packed{completionFolder + "/" + name, 0o644, []byte("# complete\n")})
	}
	if err := b.archive(dir); err != nil {
		t.Fatal(err)
	}
	if err := writeSums(dir); err != nil {
		t.Fatal(err)
	}
	return dir, b.name() + ".tar.gz"
}

// install runs install.sh without the tester's settings for a user who keeps files from others, and returns what it says and the folder that it installs to.
func install(t *testing.T, arguments ...string) (said, home string, err error) {
	t.Helper()
	home = t.TempDir()
	script, err := filepath.Abs(installer)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", append([]string{"-c", "umask 077; exec sh \"$0\" \"$@\"", script}, arguments...)...)
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir()}
	out, err := cmd.CombinedOutput()
	return string(out), home, err
}

// serve returns the folder of a small release, its archive, and the address of a server that has it.
func serve(t *testing.T) (dir, archive, address string) {
	t.Helper()
	system := runtime.GOOS == "linux" || runtime.GOOS == "darwin" && runtime.GOARCH == "arm64"
	if _, err := exec.LookPath("curl"); err != nil || !system {
		t.Skip("needs a system that install.sh knows, and curl")
	}
	dir, archive = smallRelease(t, smallProgram)
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	return dir, archive, server.URL
}

// TestInstaller: who has a shell and an address gets a program that runs.
func TestInstaller(t *testing.T) {
	dir, _, address := serve(t)

	t.Run("installs", func(t *testing.T) {
		said, home, err := install(t, "--from", address+"/")
		if err != nil || !strings.Contains(said, "small version") || !strings.Contains(said, "export PATH=") {
			t.Fatalf("%v:\n%s", err, said)
		}
		for _, file := range []string{"bin/pnode", "share/man/man1/pnode.1", "share/zsh/site-functions/_pnode", "share/doc/pnode/LICENSE"} {
			if _, err := os.Stat(filepath.Join(home, ".local", file)); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("installs files of this machine elsewhere", func(t *testing.T) {
		prefix := filepath.Join(t.TempDir(), "a place of o'neill")
		said, _, err := install(t, "--from=file://"+dir, "--prefix", prefix)
		if err != nil {
			t.Fatalf("%v:\n%s", err, said)
		}
		_, hint, found := strings.Cut(said, "Then:\n")
		hint, _, _ = strings.Cut(hint, "#")
		if out, err := exec.Command("sh", "-c", hint).CombinedOutput(); !found || err != nil || string(out) != "small doctor\n" {
			t.Errorf("%q runs %q, %v", hint, out, err)
		}
		if _, err := os.Stat(filepath.Join(prefix, "bin", "pnode")); err != nil {
			t.Error(err)
		}
	})
	for name, prefix := range map[string]string{"below home": "~/a/rel", "below the folder of the shell": "a/rel/"} {
		t.Run("installs "+name, func(t *testing.T) {
			said, home, err := install(t, "--from", address, "--prefix="+prefix)
			bin := filepath.Join(home, "a", "rel", "bin")
			if err != nil || !strings.Contains(said, "installed "+filepath.Join(bin, "pnode")+":") || !strings.Contains(said, "export PATH="+bin+":") {
				t.Fatalf("%v, want what is in %s:\n%s", err, bin, said)
			}
			left, err := os.ReadDir(home)
			if err != nil || len(left) != 1 {
				t.Errorf("it left %v, %v", left, err)
			}
		})
	}
	t.Run("installs for others", func(t *testing.T) {
		said, home, err := install(t, "--from", address, "--prefix", "shared")
		if err != nil {
			t.Fatalf("%v:\n%s", err, said)
		}
		for file, want := range map[string]os.FileMode{"": 0o755, "bin": 0o755, "bin/pnode": 0o755, "share/man/man1/pnode.1": 0o644} {
			if info, err := os.Stat(filepath.Join(home, "shared", file)); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %v, %v, want %v", file, info, err, want)
			}
		}
	})
	t.Run("keeps a program where the new one does not run", func(t *testing.T) {
		broken, _ := smallRelease(t, "#!/bin/sh\nexit 1\n")
		prefix := t.TempDir()
		if said, _, err := install(t, "--from", address, "--prefix", prefix); err != nil {
			t.Fatalf("%v:\n%s", err, said)
		}
		said, _, err := install(t, "--from", "file://"+broken, "--prefix", prefix)
		if err == nil || !strings.Contains(said, "does not run in "+prefix) {
			t.Errorf("error %v:\n%s", err, said)
		}
		if text, err := os.ReadFile(filepath.Join(prefix, "bin", "pnode")); err != nil || string(text) != smallProgram {
			t.Errorf("the program is now %q, %v", text, err)
		}
		if left, err := os.ReadDir(filepath.Join(prefix, "bin")); err != nil || len(left) != 1 {
			t.Errorf("it left %v, %v", left, err)
		}
	})
	if *realRelease != "" {
		t.Run("a release", func(t *testing.T) {
			server := httptest.NewServer(http.FileServer(http.Dir(*realRelease)))
			defer server.Close()
			said, home, err := install(t, "--from", server.URL)
			if err != nil || !strings.Contains(said, "commit") {
				t.Fatalf("%v:\n%s", err, said)
			}
			t.Logf("%s", said)
			if out, err := exec.Command(filepath.Join(home, ".local", "bin", "pnode"), "help").CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestInstallerRefuses: who gets no program is told why, and has nothing changed.
func TestInstallerRefuses(t *testing.T) {
	dir, archive, address := serve(t)
	changed := t.TempDir()
	for _, name := range []string{sumsFile, archive} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			text = bytes.Replace(text, []byte("\x1f\x8b"), []byte("\x1f\x8c"), 1)
			err = os.WriteFile(filepath.Join(changed, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	other, lacking := t.TempDir(), t.TempDir()
	for file, text := range map[string]string{filepath.Join(other, sumsFile): "00  pnode-plan9-mips.tar.gz\n", filepath.Join(lacking, sumsFile): "00  " + archive + "\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		arguments []string
		want      string
	}{
		"other bytes":         {[]string{"--from", "file://" + changed}, archive + " is not what SHA256SUMS says"},
		"other platforms":     {[]string{"--from", "file://" + other}, "does not list " + archive},
		"no archive":          {[]string{"--from", "file://" + lacking}, "cannot download file://" + lacking + "/" + archive},
		"another address":     {[]string{"--from", address + "/none"}, "cannot download " + address + "/none/SHA256SUMS"},
		"a folder":            {[]string{"--from", "rel/x"}, "rel/x is no address"},
		"no address":          {nil, "PNODE_FROM"},
		"no value":            {[]string{"--from"}, "--from has no value"},
		"an unknown argument": {[]string{"--form", "x"}, "unknown argument --form"},
	} {
		t.Run(name, func(t *testing.T) {
			said, home, err := install(t, c.arguments...)
			if err == nil || !strings.Contains(said, c.want) {
				t.Errorf("error %v, want %q in:\n%s", err, c.want, said)
			}
			if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
				t.Errorf("it left %v, %v", left, err)
			}
		})
	}
	t.Run("an unknown machine", func(t *testing.T) {
		bin := t.TempDir()
		if err := os.WriteFile(filepath.Join(bin, "uname"), []byte("#!/bin/sh\necho Plan9\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		said, _, err := install(t, "--from", "file://"+dir)
		if err == nil || !strings.Contains(said, "no program for Plan9") || !strings.Contains(said, "go build ./cmd/pnode") {
			t.Errorf("%v:\n%s", err, said)
		}
	})
}
