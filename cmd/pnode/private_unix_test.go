//go:build unix

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pnode/checkpoint/safetensors"
	"pnode/kernels/devices"
	"pnode/node/api"
	"pnode/node/config"
	"pnode/pipeline/model"
)

// underUmask returns a command that begins under a umask.
func underUmask(t *testing.T, umask string, args ...string) *exec.Cmd {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes take minutes")
	}
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", append([]string{"-c", "umask " + umask + ` && exec "$@"`, "sh", binary}, args...)...)
	cmd.Env = append(outerEnv, devices.NamesEnv+"=cpu")
	return cmd
}

// withUmask runs a command under a umask, and returns what it says.
func withUmask(t *testing.T, umask string, args ...string) string {
	t.Helper()
	said, err := underUmask(t, umask, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v under umask %s: %v\n%s", args, umask, err, said)
	}
	return string(said)
}

// allPrivate wants mode 0700 of every folder and 0600 of every file, and returns the names of the first level.
func allPrivate(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // a node that runs has removed it
			return nil
		}
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if e.IsDir() {
			want = 0o700
		}
		if st.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, st.Mode(), want)
		}
		if filepath.Dir(path) == dir {
			names = append(names, e.Name())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestFilesArePrivate: what a run of several nodes leaves, what one that goes on adds, and an imported model.
func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	for _, umask := range []string{"000", "077", "277"} {
		t.Run(umask, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "above", "run")
			withUmask(t, umask, "train", "--config", runFile(t, 10), "--local", "2", "--dir", dir)
			for _, want := range []string{config.RunFile, "node-0", "node-1"} {
				if _, err := os.Stat(filepath.Join(dir, want)); err != nil {
					t.Error(err)
				}
			}
			for _, d := range append([]string{dir}, config.NodeDirs(dir)...) {
				for _, name := range allPrivate(t, d) {
					if strings.HasPrefix(name, "tmp") {
						t.Errorf("%s is left behind", name)
					}
				}
				if told := config.MakePrivate(d); told != "" {
					t.Error(told)
				}
			}
			into := filepath.Join(t.TempDir(), "imported")
			withUmask(t, umask, "import", family(t, model.Config{Vocab: 256, Context: 16, Blocks: 1, Heads: 1, Channels: 8}, safetensors.F32), "--dir", into)
			allPrivate(t, into)
		})
	}
}

// TestFilesArePrivateWhileANodeRuns: also those that libraries make while it trains.
func TestFilesArePrivateWhileANodeRuns(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	cmd, said := underUmask(t, "000", "train", "--config", runFile(t, 1_000_000), "--dir", dir), &watched{fresh: make(chan struct{}, 1)}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	said.await(t, "checkpoint: step")
	if names := allPrivate(t, dir); !slices.Contains(names, api.AddressFile) {
		t.Errorf("the folder of a node that runs holds %v alone", names)
	}
}

// TestOpenFolderOfARun: a folder that was made for the run is set right, and doctor names one that is open.
func TestOpenFolderOfARun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	withUmask(t, "022", "train", "--config", runFile(t, 5), "--dir", dir)
	for _, name := range allPrivate(t, dir) {
		if err := os.Chmod(filepath.Join(dir, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	said := withUmask(t, "022", "doctor", "--dir", dir)
	for _, want := range []string{"other users", "mode is 0755", "chmod 700 " + dir, "identity.key"} {
		if !strings.Contains(said, want) {
			t.Errorf("doctor does not say %q:\n%s", want, said)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "store"), 0o755); err != nil {
		t.Fatal(err)
	}
	binary, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	resumed := exec.Command(binary, "train", "--resume", "--dir", dir)
	resumed.Env = outerEnv
	again, err := resumed.CombinedOutput()
	if code := resumed.ProcessState.ExitCode(); code != exitFinished || !strings.Contains(string(again), "until now") {
		t.Errorf("exit code %d, %v, the open keys are not told:\n%s", code, err, again)
	}
	allPrivate(t, dir)
	if said := withUmask(t, "022", "doctor", "--dir", dir); strings.Contains(said, "other users") {
		t.Errorf("doctor warns of a private folder:\n%s", said)
	}
}
