package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"
)

// archive packs the program and its texts in one folder: a zip for Windows, else a tar.
func (b program) archive(out string) error {
	file, write := filepath.Join(out, b.name()+".tar.gz"), writeTarGz
	if b.system == "windows" {
		file, write = filepath.Join(out, b.name()+".zip"), writeZip
	}
	w, err := os.Create(file)
	if err != nil {
		return err
	}
	within := make([]packed, len(b.files))
	for i, f := range b.files {
		f.name = path.Join(b.name(), f.name)
		within[i] = f
	}
	return errors.Join(write(w, within, b.time), w.Close())
}

func writeTarGz(w io.Writer, files []packed, at time.Time) error {
	packer, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(packer, files, at), packer.Close())
}

// writeTar writes files that belong to root, with nothing of the machine that packs them. A name that ends in a slash is a folder.
func writeTar(w io.Writer, files []packed, at time.Time) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		if err := writeEntry(t, &tar.Header{Name: f.name, Mode: int64(f.mode)}, f.text, at); err != nil {
			return err
		}
	}
	return t.Close()
}

func writeEntry(t *tar.Writer, h *tar.Header, text []byte, at time.Time) error {
	h.Size, h.ModTime, h.Format = int64(len(text)), at, tar.FormatUSTAR
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := t.Write(text)
	return err
}

func writeZip(w io.Writer, files []packed, at time.Time) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(f.mode)
		entry, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.text); err != nil {
			return err
		}
	}
	return z.Close()
}
