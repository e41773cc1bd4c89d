package native

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var errMissing = errors.New("no libc")

// libc is there wherever a library can be opened at all.
func libc(t *testing.T, functions ...string) []uintptr {
	t.Helper()
	l := Library{Files: []string{"libnowhere.so.9", "nowhere.dll"}, Functions: functions, Missing: errMissing, Outdated: "libc is too old"}
	switch runtime.GOOS {
	case "linux":
		l.Files = append(l.Files, "libc.so.6")
	case "darwin":
		l.Files = append(l.Files, "/usr/lib/libSystem.B.dylib")
	case "windows":
		l.Files = append(l.Files, "msvcrt.dll")
	}
	addresses, err := l.Open()
	if errors.Is(err, errMissing) {
		t.Skip(err)
	}
	if slices.Contains(functions, "no_such_function") {
		if err == nil || !strings.Contains(err.Error(), "libc is too old: ") || !strings.Contains(err.Error(), "no_such_function") {
			t.Errorf("no function: %v", err)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	return addresses
}

func TestOpen(t *testing.T) {
	functions := libc(t, "abs", "labs")
	minus := int32(-7)
	if got := int32(Call(functions[0], uintptr(minus))); got != 7 {
		t.Errorf("abs(-7) = %d", got)
	}
	args := [1]uintptr{3}
	if n := testing.AllocsPerRun(50, func() { Call(functions[1], args[:]...) }); n != 0 {
		t.Errorf("a call makes %v allocations", n)
	}
}

func TestOptional(t *testing.T) {
	l := Library{Files: []string{"libc.so.6", "/usr/lib/libSystem.B.dylib", "msvcrt.dll"}, Functions: []string{"abs"}, Optional: []string{"no_such_function", "labs"}, Missing: errMissing}
	functions, err := l.Open()
	if errors.Is(err, errMissing) {
		t.Skip(err)
	}
	if err != nil || len(functions) != 3 || functions[1] != 0 || functions[2] == 0 {
		t.Errorf("%x, %v", functions, err)
	}
}

func TestMissing(t *testing.T) {
	libc(t, "abs", "no_such_function")
	_, err := Library{Files: []string{"libnowhere.so.9", "nowhere.dll"}, Missing: errMissing}.Open()
	if !errors.Is(err, errMissing) || runtime.GOOS == "linux" && err.Error() != errMissing.Error() {
		t.Errorf("no library: %v", err)
	}
}

func TestCallback(t *testing.T) {
	sum := Callback(func(a, b, c, d, e, f, g, h, i, j, k uintptr) uintptr {
		return a + 2*b + 3*c + d + e + f + g + h + i + j + 11*k
	})
	if got := Call(sum, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1); got != 24 {
		t.Errorf("eleven arguments: %d, want 24", got)
	}
}
