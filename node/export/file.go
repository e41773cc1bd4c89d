package export

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// mostHeld bounds the bytes that wait for room on a disk.
const mostHeld = 1 << 20

// sized is a file that can be cut; *os.File is one.
type sized interface {
	io.Writer
	io.Seeker
	io.Closer
	Truncate(size int64) error
}

// growing is a file to which whole records are appended: a write that fails leaves none in part.
type growing struct {
	file    sized
	regular bool         // else a pipe or a device, which cannot be cut
	begin   func() error // is called before the first record is written, until it succeeds; nil: there is nothing to do
	end     int64
	waits   []byte // records that are not written yet
	dropped int    // records for which there was no room
}

// add keeps a record to be written.
func (g *growing) add(record []byte) {
	if len(g.waits)+len(record) > mostHeld {
		g.dropped++
		return
	}
	g.waits = append(g.waits, record...)
}

// flush writes all records that wait, or none.
func (g *growing) flush() error {
	if len(g.waits) == 0 {
		return nil
	}
	if g.begin != nil {
		if err := g.begin(); err != nil {
			return err
		}
		g.begin = nil
	}
	n, err := g.file.Write(g.waits)
	switch {
	case err == nil:
		g.end += int64(n)
	case !g.regular:
		g.waits = g.waits[n:]
		return bare(err)
	default:
		_, seek := g.file.Seek(g.end, io.SeekStart)
		return errors.Join(bare(err), g.file.Truncate(g.end), seek)
	}
	g.waits = g.waits[:0]
	if g.dropped > 0 {
		err = fmt.Errorf("%d records are missing: there was no room for them", g.dropped)
		g.dropped = 0
	}
	return err
}

// bare returns an error without the file's name, which others say.
func bare(err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		return at.Err
	}
	return err
}

// openGrowing opens a file to append to, made where there is none.
func openGrowing(path string) (*growing, *os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, nil, bare(err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(bare(err), f.Close())
	}
	g := &growing{file: f, regular: st.Mode().IsRegular(), end: st.Size()}
	if g.regular {
		if _, err := f.Seek(g.end, io.SeekStart); err != nil {
			return nil, nil, errors.Join(bare(err), f.Close())
		}
	}
	return g, f, nil
}
