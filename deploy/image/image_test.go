package image

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// withImage is a file with bytes for a static program, and this test's binary behind it where
// a loader starts that, else what looks like such a program.
func withImage(t *testing.T) (path string, program []byte) {
	t.Helper()
	program = dynamicProgram(t)
	path = filepath.Join(t.TempDir(), "program")
	file, err := os.Create(path)
	if err == nil {
		_, err = file.WriteString("a static program")
	}
	if err == nil {
		err = Append(file, program)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return path, program
}

func TestAppendedImageIsFound(t *testing.T) {
	path, program := withImage(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(data, []byte("a static program")) {
		t.Error("the program before the image has changed")
	}
	found, ok, err := Find(bytes.NewReader(data), int64(len(data)))
	if err != nil || !ok || found.Loader != testLoader {
		t.Fatalf("found %v with the loader %q: %v", ok, found.Loader, err)
	}
	var got bytes.Buffer
	if _, err := found.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), program) {
		t.Errorf("%d bytes came out of %d: %v", got.Len(), len(program), err)
	}
}

func TestDamagedImagesAreRefused(t *testing.T) {
	path, _ := withImage(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func([]byte) []byte{
		"a flipped bit":     func(b []byte) []byte { b[len("a static program")+40] ^= 1; return b },
		"a size beyond":     func(b []byte) []byte { b[len(b)-18] = 1; return b },
		"text after loader": func(b []byte) []byte { b[len(b)-int(footerSize)+60] = 'x'; return b },
		"no loader":         func(b []byte) []byte { clear(b[len(b)-int(footerSize):][:64]); return b },
		"a missing part":    func(b []byte) []byte { return append(b[:30:30], b[40:]...) },
	} {
		data := damage(bytes.Clone(whole))
		found, _, err := Find(bytes.NewReader(data), int64(len(data)))
		if err == nil {
			_, err = found.WriteTo(io.Discard)
		}
		if !errors.Is(err, ErrBadImage) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
	if _, ok, err := Find(bytes.NewReader(whole[:len(whole)-1]), int64(len(whole)-1)); ok || err != nil {
		t.Errorf("a file without its end: %v, %v", ok, err)
	}
}

func TestAppendRefusesStaticPrograms(t *testing.T) {
	for _, program := range []string{"no program", string(elfHeader(t, ""))} {
		file, err := os.Create(filepath.Join(t.TempDir(), "program"))
		if err != nil {
			t.Fatal(err)
		}
		if err := Append(file, []byte(program)); err == nil || !strings.Contains(err.Error(), "image: ") {
			t.Errorf("%d bytes were appended: %v", len(program), err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add([]byte("words"))
	f.Add(append(make([]byte, 72), magic[:]...))
	f.Fuzz(func(t *testing.T, data []byte) {
		found, ok, err := Find(bytes.NewReader(data), int64(len(data)))
		if !ok || err != nil {
			return
		}
		if found.data.Size() > int64(len(data)) || found.Loader == "" {
			t.Errorf("an image of %d bytes in %d for %q", found.data.Size(), len(data), found.Loader)
		}
		var out bytes.Buffer
		if n, err := found.WriteTo(&out); err == nil && n > maxBytes {
			t.Errorf("%d bytes came out", n)
		}
	})
}

// testLoader is the loader that programs of these tests ask for.
const testLoader = "/lib/ld-test.so"

// dynamicProgram is the least that says which loader starts it, and some bytes more.
func dynamicProgram(t *testing.T) []byte {
	t.Helper()
	return append(elfHeader(t, testLoader), bytes.Repeat([]byte("code "), 1000)...)
}

// elfHeader is a program for a loader, or without one.
func elfHeader(t *testing.T, loader string) []byte {
	t.Helper()
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: uint64(binary.Size(elf.Header64{})), Phentsize: uint16(binary.Size(elf.Prog64{})), Ehsize: uint16(binary.Size(elf.Header64{})),
	}
	var segment elf.Prog64
	if loader != "" {
		header.Phnum = 1
		at := header.Phoff + uint64(header.Phentsize)
		size := uint64(len(loader) + 1)
		segment = elf.Prog64{Type: uint32(elf.PT_INTERP), Off: at, Filesz: size, Memsz: size}
	}
	var b bytes.Buffer
	for _, part := range []any{header, segment, append([]byte(loader), 0)} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}
