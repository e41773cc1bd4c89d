package native

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// libc is there wherever a library can be opened at all.
func libc(t *testing.T) []string {
	t.Helper()
	names := map[string]string{"linux": "libc.so.6", "darwin": "/usr/lib/libSystem.B.dylib", "windows": "msvcrt.dll"}
	name, ok := names[runtime.GOOS]
	if !ok {
		t.Skip("no name of libc is known here")
	}
	return []string{"libnowhere.so.9", name}
}

func TestOpen(t *testing.T) {
	functions, err := Open(libc(t), []string{"abs", "labs"})
	if errors.Is(err, ErrNoLibrary) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	minus := int32(-7)
	if got := int32(Call(functions[0], uintptr(minus))); got != 7 {
		t.Errorf("abs(-7) = %d", got)
	}
	args := [1]uintptr{3}
	if n := testing.AllocsPerRun(50, func() { Call(functions[1], args[:]...) }); n != 0 {
		t.Errorf("a call makes %v allocations", n)
	}
}

func TestMissing(t *testing.T) {
	if _, err := Open([]string{"libnowhere.so.9"}, nil); !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), "libnowhere") {
		t.Errorf("no library: %v", err)
	}
	_, err := Open(libc(t), []string{"abs", "no_such_function"})
	if errors.Is(err, ErrNoLibrary) {
		t.Skip(err)
	}
	if !errors.Is(err, ErrNoFunction) || !strings.Contains(err.Error(), "no_such_function") {
		t.Errorf("no function: %v", err)
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
