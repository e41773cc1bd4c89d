package image

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// ErrBadImage means that the image after a program is damaged.
var ErrBadImage = errors.New("image: damaged")

// magic ends a file that has an image.
var magic = [16]byte{'p', 'n', 'o', 'd', 'e', ' ', 'i', 'm', 'a', 'g', 'e', ' ', 'v', '1', '\n'}

// maxBytes bounds an image.
const maxBytes = 1 << 30

// footer is the last bytes of a file with an image, little endian.
type footer struct {
	Loader [64]byte // a path, then zeros
	Size   uint64   // compressed
	Magic  [16]byte
}

var footerSize = int64(binary.Size(footer{}))

// Append writes an image after the static program in file. The image is a program for Linux
// that a loader starts.
func Append(file *os.File, program []byte) error {
	loader, err := loaderOf(program)
	if err != nil {
		return err
	}
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	encoder, err := zstd.NewWriter(file, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err == nil {
		_, err = encoder.Write(program)
		err = errors.Join(err, encoder.Close())
	}
	if err != nil {
		return fmt.Errorf("image: compress: %w", err)
	}
	behind, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	f := footer{Size: uint64(behind - end), Magic: magic}
	copy(f.Loader[:], loader)
	if err := binary.Write(file, binary.LittleEndian, f); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return nil
}

// loaderOf is the path of the loader that a program asks for.
func loaderOf(program []byte) (string, error) {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return "", fmt.Errorf("image: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		path := make([]byte, min(p.Filesz, uint64(len(footer{}.Loader))))
		if _, err := p.ReadAt(path, 0); err != nil {
			return "", fmt.Errorf("image: %w", err)
		}
		if path, ended := bytes.CutSuffix(path, []byte{0}); ended {
			return string(path), nil
		}
	}
	return "", errors.New("image: the program names no loader: it opens no drivers")
}

// Image locates the second program within a file.
type Image struct {
	// Loader is the path of the loader that starts it.
	Loader string
	data   *io.SectionReader
}

// Find looks for an image at the end of a file of so many bytes. Without one there is no error.
func Find(file io.ReaderAt, size int64) (_ Image, found bool, err error) {
	if size < footerSize {
		return Image{}, false, nil
	}
	var f footer
	if err := binary.Read(io.NewSectionReader(file, size-footerSize, footerSize), binary.LittleEndian, &f); err != nil {
		return Image{}, false, fmt.Errorf("image: %w", err)
	}
	if f.Magic != magic {
		return Image{}, false, nil
	}
	loader, rest, _ := strings.Cut(string(f.Loader[:]), "\x00")
	if f.Size > uint64(size-footerSize) || loader == "" || strings.Trim(rest, "\x00") != "" {
		return Image{}, false, fmt.Errorf("%w: %d bytes of %d for the loader %q", ErrBadImage, f.Size, size, loader)
	}
	return Image{loader, io.NewSectionReader(file, size-footerSize-int64(f.Size), int64(f.Size))}, true, nil
}

// WriteTo decompresses the image; the format's checksum is checked.
func (i Image) WriteTo(w io.Writer) (int64, error) {
	decoder, err := zstd.NewReader(io.NewSectionReader(i.data, 0, i.data.Size()), zstd.WithDecoderMaxMemory(maxBytes))
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrBadImage, err)
	}
	defer decoder.Close()
	n, err := io.Copy(w, io.LimitReader(decoder, maxBytes))
	if err != nil {
		return n, fmt.Errorf("%w: %w", ErrBadImage, err)
	}
	return n, nil
}
