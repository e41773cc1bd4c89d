package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"

	"pnode/swarm/listen"
)

// listenAddr returns where to listen; the error wraps ErrInvalid.
func (c Config) listenAddr() ([]netip.AddrPort, error) {
	at, err := listen.Parse(c.Listen)
	if err != nil {
		return at, c.refuse("listen", c.Listen, err)
	}
	return at, nil
}

// TryListen listens on "host:port" for a moment, over UDP and TCP as a node does, to
// explain before anything is made what cannot work. The error wraps ErrInvalid for an
// address that is not this machine's and listen.ErrPortInUse for a port that is taken.
func (c Config) TryListen() error {
	if c.Announce != "" && (c.Local > 0 || c.Cluster != "") {
		return c.invalid("announce", c.Announce, "none with several nodes on one machine: each would tell the same addresses")
	}
	if c.Listen == "" {
		return nil
	}
	at, err := c.listenAddr()
	if err != nil {
		return err
	}
	_, err = listen.Free(at)
	if err != nil && !errors.Is(err, listen.ErrElsewhere) {
		return fmt.Errorf("config: %s is %s: %w", c.written("listen"), c.Listen, err)
	}
	if err != nil {
		return c.refuse("listen", c.Listen, err)
	}
	return nil
}

// TryTrace opens the file of a timeline for writing, to explain before the data is read
// what cannot work. It leaves things as they were: a file keeps what it holds, and a pipe
// is not opened, whose reader would take the end of this for that of the timeline. The
// error wraps ErrInvalid.
func (c Config) TryTrace() error {
	if c.Trace == "" {
		return nil
	}
	st, err := os.Stat(c.Trace)
	if err == nil && !st.IsDir() && !st.Mode().IsRegular() {
		return nil
	}
	isNew := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(c.Trace, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		if at := (*fs.PathError)(nil); errors.As(err, &at) {
			err = at.Err // without the path, which is named already
		}
		return c.refuse("trace", c.Trace, fmt.Errorf("%w; name a file in a folder that is there and can be written to", err))
	}
	err = f.Close()
	if isNew {
		err = errors.Join(err, os.Remove(c.Trace))
	}
	return err
}
