package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"

	"pnode/swarm/listen"
	"pnode/swarm/neterr"
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

// MetricsAddr returns the "HOST:PORT" to answer scrapers at, "" for none. The error wraps ErrInvalid.
func (c Config) MetricsAddr() (string, error) {
	text := c.Metrics
	if text == "" {
		return "", nil
	}
	if _, err := strconv.ParseUint(text, 10, 16); err == nil {
		text = net.JoinHostPort("127.0.0.1", text)
	}
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", c.invalid("metrics", c.Metrics, "PORT for programs of this machine, or HOST:PORT, as in 9464 or 0.0.0.0:9464")
	}
	return text, nil
}

// TryMetrics takes the address for scrapers for a moment, to explain before anything is made what cannot work. The error wraps
// listen.ErrPortInUse for a port that is taken, which may be free when a service starts the node again, else ErrInvalid.
func (c Config) TryMetrics() error {
	at, err := c.MetricsAddr()
	if err != nil || at == "" {
		return err
	}
	l, err := net.Listen("tcp", at)
	if neterr.InUse(err) {
		return fmt.Errorf("config: %s is %s: %w: stop the program that has it, or name another port", c.written("metrics"), c.Metrics, listen.ErrPortInUse)
	}
	if err != nil {
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			err = op.Err // without the address, which is named already
		}
		return c.refuse("metrics", c.Metrics, fmt.Errorf("%w; name another port, or an address of this machine", err))
	}
	return l.Close()
}

// TryFiles opens the files of a timeline and of numbers for writing, to explain before the data is read
// what cannot work. It leaves things as they were: a file keeps what it holds, and a pipe
// is not opened, whose reader would take the end of this for that of what is written. The
// error wraps ErrInvalid.
func (c Config) TryFiles() error {
	return errors.Join(c.tryFile("trace", c.Trace), c.tryFile("csv", c.CSV))
}

func (c Config) tryFile(key, path string) error {
	if path == "" {
		return nil
	}
	st, err := os.Stat(path)
	if err == nil && !st.IsDir() && !st.Mode().IsRegular() {
		return nil
	}
	isNew := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		if at := (*fs.PathError)(nil); errors.As(err, &at) {
			err = at.Err // without the path, which is named already
		}
		return c.refuse(key, path, fmt.Errorf("%w; name a file in a folder that is there and can be written to", err))
	}
	err = f.Close()
	if isNew {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}
