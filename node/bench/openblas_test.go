package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestNewest takes the highest version, the first of two alike, and none that cannot be used.
func TestNewest(t *testing.T) {
	for want, names := range map[int][]string{
		-1: {"", ""},
		0:  {"OpenBLAS 0.3.21", "OpenBLAS 0.3.21", ""},
		1:  {"OpenBLAS 0.3.9", "OpenBLAS 0.3.21", "OpenBLAS 0.3.21.dev", "OpenBLAS"},
		2:  {"OpenBLAS 0.3.21", "OpenBLAS 0.3.21.dev", "OpenBLAS 0.3.30.dev"},
		3:  {"OpenBLAS 0.3.30", "OpenBLAS 0.3.30.0", "OpenBLAS 0.3.29.9", "OpenBLAS 0.3.30.1"},
	} {
		var found []library
		for i, name := range names {
			l := library{Path: fmt.Sprint(i), Name: name}
			if name == "" {
				l.Error = "not to be loaded"
			}
			found = append(found, l)
		}
		if got := newest(found); got != want {
			t.Errorf("of %q it is %d, want %d", names, got, want)
		}
		if others := notTaken(found, want); len(others) != len(names)-min(1, want+1) {
			t.Errorf("of %q not taken are %q", names, others)
		}
	}
}

// fakeBLAS is an OpenBLAS for one product, which ends the process where it is asked for another. Its
// names and integers are as in builds of Debian, and of numpy's and scipy's wheels.
const fakeBLAS = `
#include <stdlib.h>
#define JOIN_(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define NAME(f) JOIN(BEFORE, f, AFTER)
char *NAME(openblas_get_config)(void) { return "OpenBLAS " VERSION " DYNAMIC_ARCH FAKE"; }
char *NAME(openblas_get_corename)(void) { return "Fake"; }
static int threads;
void NAME(openblas_set_num_threads)(int n) { threads = n; }
void NAME(cblas_sgemm)(int order, int ta, int tb, INT m, INT n, INT k, float alpha, const float *a, INT lda,
	const float *b, INT ldb, float beta, float *c, INT ldc) {
	if (order != 101 || ta != 112 || tb != 111 || m != 5 || n != 7 || k != 9 || alpha != 1 || lda != 5 || ldb != 7 || beta != 1 || ldc != 7 || threads != 3)
		abort();
	c[0] += a[0] * b[0];
}
`

// TestOpenBLASOfWheels builds libraries as they come with packages, and multiplies with the newest.
func TestOpenBLASOfWheels(t *testing.T) {
	python, noPython := exec.LookPath("python3")
	cc, noCC := exec.LookPath("cc")
	if noPython != nil || noCC != nil || runtime.GOOS != "linux" {
		t.Skip("it takes Linux, python3 and cc")
	}
	packages := t.TempDir()
	build := func(path, version, before, after, integer string) string {
		t.Helper()
		path = filepath.Join(packages, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		defines := []string{"-DVERSION=\"" + version + "\"", "-DBEFORE=" + before, "-DAFTER=" + after, "-DINT=" + integer}
		cmd := exec.CommandContext(t.Context(), cc, append(defines, "-shared", "-fPIC", "-x", "c", "-o", path, "-")...)
		cmd.Stdin = strings.NewReader(fakeBLAS)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("the compiler makes no libraries: %v\n%s", err, out)
		}
		return path
	}
	broken := filepath.Join(packages, "numpy.libs", "libopenblas-broken.so")
	paths := []string{
		build("scipy.libs/libscipy_openblas-0.so", "999.1", "scipy_", "", "int"),
		build("numpy.libs/libopenblas64_p-r0.so", "999.2", "", "64_", "long long"),
		build("scipy_openblas64/lib/libscipy_openblas64_.so", "999.10.dev", "scipy_", "64_", "long long"),
		build("scipy_openblas32/lib/libopenblas.so", "999.9", "", "", "int"),
	}
	if err := os.WriteFile(broken, []byte("no library"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", packages)
	blas, from, others, err := startOpenBLAS(t.Context(), python, "")
	if err != nil {
		t.Fatal(err)
	}
	defer blas.close()
	if from != paths[2] || blas.hello.Name != "OpenBLAS 999.10.dev" || blas.hello.Kernel != "Fake" {
		t.Errorf("%+v from %s, want %s", blas.hello, from, paths[2])
	}
	if said := strings.Join(others, "\n"); !strings.Contains(said, paths[0]+": OpenBLAS 999.1") || !strings.Contains(said, broken+": ") {
		t.Errorf("not taken are %s", said)
	}
	for _, path := range paths {
		one, from, _, err := startOpenBLAS(t.Context(), python, path)
		if err != nil || from != path {
			t.Fatalf("%s: %v", from, err)
		}
		a, err := one.asks(productRequest{callRequest: callRequest{Calls: 2, RoundTime: 1e-3}, M: 5, N: 7, K: 9, Threads: 3, TransA: true, Accumulate: true})()
		if err != nil || a.Seconds > 60 {
			t.Errorf("%s: %+v, %v", path, a, err)
		}
		_ = one.close()
	}
	if _, _, _, err := startOpenBLAS(t.Context(), python, broken); err == nil || !strings.Contains(err.Error(), broken+" cannot be used as OpenBLAS: ") {
		t.Errorf("%v", err)
	}
}
