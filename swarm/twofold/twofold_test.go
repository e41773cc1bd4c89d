package twofold

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const name = "seat.json"

// whole accepts what ends with a full stop.
func whole(data []byte) (string, error) {
	data = bytes.TrimSuffix(data, []byte("\n"))
	if !bytes.HasSuffix(data, []byte(".")) {
		return "", errors.New("no full stop")
	}
	return string(data), nil
}

// lay puts files in place; the text "-" stands for none.
func lay(t *testing.T, first, second string) string {
	t.Helper()
	dir := t.TempDir()
	for n, text := range map[string]string{name: first, name + suffix: second} {
		if text == "-" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, n), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Verify finds each copy that is not as it was written, says whether the other one is, and changes nothing.
func TestVerify(t *testing.T) {
	good, other := string(seal([]byte("yes."))), string(seal([]byte("no.")))
	for _, tt := range []struct{ first, second, want string }{
		{good, good, ""},
		{"yes.", "yes.", ""}, // of an older pnode
		{good, "-", "copy copied; "},
		{"-", good, "first copied; "},
		{good[1:], good, "first copied; "},
		{good, "yes.", "copy copied; "},
		{good, other, "copy copied; "},
		{good[1:], good[1:], "first; copy; "},
		{good[1:], "-", "first; copy; "},
	} {
		dir, got := lay(t, tt.first, tt.second), ""
		damaged, err := Verify(dir, name, 100, func([]byte) error { return nil })
		for _, d := range damaged {
			if got += map[bool]string{true: "first", false: "copy"}[d.Path == filepath.Join(dir, name)]; d.Copied {
				got += " copied"
			}
			got += "; "
		}
		if got != tt.want || err != nil {
			t.Errorf("%q and %q: %s %v, want %s", tt.first, tt.second, got, err, tt.want)
		}
		if data, _ := os.ReadFile(filepath.Join(dir, name)); tt.first != "-" && string(data) != tt.first {
			t.Errorf("%q was changed", tt.first)
		}
	}
	if _, err := Verify(t.TempDir(), name, 100, func([]byte) error { return nil }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// checkWhole is whole without the value.
func checkWhole(data []byte) error {
	_, err := whole(data)
	return err
}

// copies returns what both copies hold.
func copies(t *testing.T, dir string) (both [2]string) {
	t.Helper()
	for i, n := range []string{name, name + suffix} {
		b, err := os.ReadFile(filepath.Join(dir, n))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		both[i] = fmt.Sprintf("%s %v", b, err == nil)
	}
	return both
}

// TestTooFewOpenFilesAreNoDamage: a copy that could not be opened for them may be the newer one, and is not written anew.
func TestTooFewOpenFilesAreNoDamage(t *testing.T) {
	dir := lay(t, "new.", "old.")
	for _, full := range []error{syscall.EMFILE, syscall.ENFILE} {
		for _, closed := range []string{"new.", "old."} {
			parse := func(data []byte) (string, error) {
				if string(data) == closed {
					return "", &fs.PathError{Op: "open", Path: name, Err: full}
				}
				return whole(data)
			}
			check := func(data []byte) error { _, err := parse(data); return err }
			if got, err := Read(dir, name, 50, parse); closed == "new." && (!errors.Is(err, full) || errors.Is(err, ErrDamaged)) || closed == "old." && (err != nil || got != "new.") {
				t.Errorf("%v, %s: read %q, %v", full, closed, got, err)
			}
			if damaged, err := Verify(dir, name, 50, check); !errors.Is(err, full) || len(damaged) > 0 {
				t.Errorf("%v, %s: verified %v, %v", full, closed, damaged, err)
			}
			before := copies(t, dir)
			if err := Mend(dir, name, 50, check); !errors.Is(err, full) || copies(t, dir) != before {
				t.Errorf("%v, %s: mended, %v", full, closed, err)
			}
		}
	}
}

func TestEitherCopyIsEnough(t *testing.T) {
	for _, tt := range []struct{ first, second, want string }{
		{"new.", "old.", "new."},
		{"torn", "old.", "old."},
		{"", "old.", "old."},
		{"-", "old.", "old."},
		{"new.", "torn", "new."},
		{"new.", "-", "new."},
		{strings.Repeat("x", 200) + ".", "old.", "old."},
	} {
		dir := lay(t, tt.first, tt.second)
		for range 2 { // the second time both are whole
			before := copies(t, dir)
			got, err := Read(dir, name, 50, whole)
			if err != nil || got != tt.want {
				t.Errorf("%+v: got %q, %v", tt, got, err)
			}
			if after := copies(t, dir); after != before {
				t.Errorf("%+v: Read made %q of %q", tt, after, before)
			}
			if err := Mend(dir, name, 50, checkWhole); err != nil {
				t.Errorf("%+v: %v", tt, err)
			}
		}
		for _, n := range []string{name, name + suffix} {
			b, err := os.ReadFile(filepath.Join(dir, n))
			if _, broken := whole(b); err != nil || broken != nil {
				t.Errorf("%+v: %s is %q afterwards, %v", tt, n, b, err)
			}
		}
	}
}

func TestNeitherCopy(t *testing.T) {
	if _, err := Read(t.TempDir(), name, 50, whole); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no files: %v", err)
	}
	for _, tt := range [][2]string{{"torn", "torn"}, {"torn", "-"}, {"-", "torn"}} {
		dir := lay(t, tt[0], tt[1])
		_, err := Read(dir, name, 50, whole)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), filepath.Join(dir, name)) || !strings.Contains(err.Error(), "full stop") {
			t.Errorf("%q: %v", tt, err)
		}
	}
}

func TestCreateWriteRemove(t *testing.T) {
	dir := t.TempDir()
	if err := Create(dir, name, []byte("one.")); err != nil {
		t.Fatal(err)
	}
	if err := Create(dir, name, []byte("two.")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("created twice: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	if err := Create(dir, name, []byte("two.")); !errors.Is(err, fs.ErrExist) || !Exists(dir, name) {
		t.Errorf("created over its copy: %v", err)
	}
	if err := Write(dir, name, []byte("three.")); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(dir, name, 50, whole); err != nil || got != "three." {
		t.Errorf("got %q, %v", got, err)
	}
	for range 2 {
		if err := Remove(dir, name); err != nil || Exists(dir, name) {
			t.Errorf("removed: %v", err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// TestEveryFlipAndCut of one copy is healed from the other, whatever parse would have taken; of both, it is told.
func TestEveryFlipAndCut(t *testing.T) {
	parse := func(data []byte) (string, error) { return string(data), nil } // takes anything
	const text = "epoch 12345\n"
	dir := t.TempDir()
	if err := Write(dir, name, []byte(text)); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	var harmed [][]byte
	for bit := range 8 * len(whole) {
		bad := bytes.Clone(whole)
		bad[bit/8] ^= 1 << (bit % 8)
		harmed = append(harmed, bad)
	}
	for n := range whole {
		harmed = append(harmed, whole[:n])
	}
	for i, bad := range harmed {
		dir := t.TempDir()
		one, other := name, name+suffix
		if i%2 == 1 {
			one, other = other, one
		}
		err := errors.Join(os.WriteFile(filepath.Join(dir, one), bad, 0o600), os.WriteFile(filepath.Join(dir, other), whole, 0o600))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(dir, name, 50, parse)
		err = errors.Join(err, Mend(dir, name, 50, func([]byte) error { return nil }))
		healed, unread := os.ReadFile(filepath.Join(dir, one))
		if err != nil || got != text || unread != nil || !bytes.Equal(healed, whole) {
			t.Fatalf("%q in %s: %q, %v; healed to %q, %v", bad, one, got, err, healed, unread)
		}
	}
	flipped := bytes.Clone(whole)
	flipped[0] ^= 1
	dir = t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, name), flipped, 0o600), os.WriteFile(filepath.Join(dir, name+suffix), flipped, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, name, 50, parse); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("both flipped: %v", err)
	}
}

// TestVerifyReadsWhatHasNoChecksum: copies that are alike, and that lost their checksums, are damaged where they say nothing.
func TestVerifyReadsWhatHasNoChecksum(t *testing.T) {
	check := func(data []byte) error {
		if string(data) != "a key" {
			return errors.New("not a key")
		}
		return nil
	}
	for text, want := range map[string]string{"a key": "", "hello": "not a key", "": "it is empty"} {
		dir := t.TempDir()
		for _, path := range []string{name, name + suffix} {
			if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		damaged, err := Verify(dir, name, 100, check)
		if err != nil || (want == "") != (len(damaged) == 0) {
			t.Errorf("%q: %v, %v", text, damaged, err)
		}
		for _, d := range damaged {
			if d.Copied || !strings.Contains(d.Err.Error(), want) {
				t.Errorf("%q: %v, want %q", text, d, want)
			}
		}
	}
}
