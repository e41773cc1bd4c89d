package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
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
	alone := exec.Command("/pnode", "doctor", "--json")
	alone.Dir, alone.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: dir}
	d := doctorOf(t, alone)
	if d.Drivers || len(d.Devices) != 1 || !d.Devices[0].Used || d.Devices[0].Name != devices.CPU {
		t.Errorf("in an empty folder it says %+v", d)
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
