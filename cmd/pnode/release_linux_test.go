package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pnode/deploy/image"
	"pnode/kernels/devices"
)

// releaseFile makes what deploy/release makes for this platform: a static program with the one
// of the other tests behind it.
func releaseFile(t *testing.T, dir string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the program")
	}
	opening, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pnode")
	if err := build(append(outerEnv, "CGO_ENABLED=0"), file, "-tags", "static"); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(opening)
	if err != nil {
		t.Fatal(err)
	}
	static, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := image.Append(static, program); err != nil {
		t.Fatal(err)
	}
	if err := static.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestAReleaseOpensDriversWhereItCan: the very same file does with the loader of the C library
// and without, in a folder that is all the file sees.
func TestAReleaseOpensDriversWhereItCan(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := releaseFile(t, dir)
	if d := doctorOf(t, exec.Command(file, "doctor", "--json")); !d.Drivers {
		t.Errorf("with a loader it opens no drivers: %+v", d)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may lock a process into a folder")
	}
	alone := func(args ...string) *exec.Cmd {
		cmd := exec.Command("/pnode", args...)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: dir}
		return cmd
	}
	d := doctorOf(t, alone("doctor", "--json"))
	if d.Drivers || len(d.Devices) != 1 || !d.Devices[0].Used || d.Devices[0].Name != devices.CPU {
		t.Errorf("in an empty folder it says %+v", d)
	}
	said, err := alone("doctor").Output()
	if err != nil || !strings.Contains(string(said), "opens no drivers here") || !strings.Contains(string(said), "mount /proc") {
		t.Errorf("%v, why it opens none is not said:\n%s", err, said)
	}
}

func doctorOf(t *testing.T, cmd *exec.Cmd) (d devices.Diagnosis) {
	t.Helper()
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &d)
	}
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return d
}
