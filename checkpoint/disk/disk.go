// Package disk changes the files of a folder. Each change is one call, and Before sees it first: a test stops, fails or
// slows a store at any of its changes without another file system.
//
// It knows nothing of what the files hold. It is called by checkpoint and checkpoint/journal.
package disk

import (
	"errors"
	"os"
	"path/filepath"
)

// Change is a kind of change to files.
type Change string

// The changes that Before is told of.
const (
	Create     Change = "create"
	Write      Change = "write"
	Sync       Change = "sync"
	Rename     Change = "rename"
	Remove     Change = "remove"
	SyncFolder Change = "sync folder"
)

// Disk carries out changes; the zero value is usable.
type Disk struct {
	// Before, if not nil, is called before each change, for a rename with the new path. Its error is returned in
	// place of the change.
	Before func(change Change, path string) error
}

func (d Disk) change(c Change, path string, do func() error) error {
	if d.Before != nil {
		if err := d.Before(c, path); err != nil {
			return err
		}
	}
	return do()
}

// MakeFolder makes a folder and those above it, for this user alone. One that is there stays as it is.
func (d Disk) MakeFolder(path string) error {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return nil
	}
	return d.change(Create, path, func() error { return os.MkdirAll(path, 0o700) })
}

// Create makes a file, or empties the one that is there.
func (d Disk) Create(path string) (*File, error) {
	return d.open(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

// Open opens a file to read it and to add to it.
func (d Disk) Open(path string) (*File, error) { return d.open(path, os.O_RDWR) }

// OpenToRead opens a file to read it alone.
func (d Disk) OpenToRead(path string) (*File, error) { return d.open(path, os.O_RDONLY) }

func (d Disk) open(path string, flags int) (f *File, err error) {
	f = &File{disk: d}
	open := func() error { f.os, err = os.OpenFile(path, flags, 0o600); return err }
	if flags&os.O_CREATE != 0 {
		err = d.change(Create, path, open)
	} else {
		err = open()
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// WriteNew writes and syncs a file. Its name is durable once its folder is synced.
func (d Disk) WriteNew(path string, data []byte) error {
	f, err := d.Create(path)
	if err != nil {
		return err
	}
	err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Rename gives a file another name. It is durable once the folder is synced.
func (d Disk) Rename(from, to string) error {
	return d.change(Rename, to, func() error { return os.Rename(from, to) })
}

// Replace gives a file another name, in place of the file that has it, and makes that durable.
func (d Disk) Replace(from, to string) error {
	if err := d.Rename(from, to); err != nil {
		return err
	}
	return d.SyncFolder(filepath.Dir(to))
}

// Remove removes a file or an empty folder.
func (d Disk) Remove(path string) error {
	return d.change(Remove, path, func() error { return os.Remove(path) })
}

// SyncFolder makes the names in a folder durable.
func (d Disk) SyncFolder(path string) error {
	return d.change(SyncFolder, path, func() error { return syncFolder(path) })
}

// File is an open file.
type File struct {
	disk Disk
	os   *os.File
}

// WriteAt writes all of data at an offset.
func (f *File) WriteAt(data []byte, offset int64) error {
	return f.disk.change(Write, f.os.Name(), func() error { _, err := f.os.WriteAt(data, offset); return err })
}

// ReadAt fills data with what is at an offset.
func (f *File) ReadAt(data []byte, offset int64) error {
	_, err := f.os.ReadAt(data, offset)
	return err
}

// Sync returns when what was written is durable.
func (f *File) Sync() error { return f.disk.change(Sync, f.os.Name(), f.os.Sync) }

// Reserve takes room, so that the next bytes after size can be written when the disk is full. Where a file system cannot, it
// promises nothing.
func (f *File) Reserve(size, bytes int64) error { return reserve(f.os, size, bytes) }

// Cut ends the file after size bytes, durably.
func (f *File) Cut(size int64) error {
	if err := f.disk.change(Write, f.os.Name(), func() error { return f.os.Truncate(size) }); err != nil {
		return err
	}
	return f.Sync()
}

// AtPath reports whether the file still has the name that it was opened by.
func (f *File) AtPath() bool {
	is, err := f.os.Stat()
	at, errAt := os.Stat(f.os.Name())
	return err == nil && errAt == nil && os.SameFile(is, at)
}

// Close closes the file. What was not synced may be lost.
func (f *File) Close() error { return f.os.Close() }
