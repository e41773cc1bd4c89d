package tcp

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// maxHello bounds what is read of a ClientHello, in bytes. With keys of post-quantum groups one has 2 KB.
const maxHello = 16 << 10

var errHelloRead = errors.New("the hello was read")

// clientHello reads a ClientHello from r and returns the ALPN protocols that it offers, with all that was read.
func clientHello(r io.Reader) (protocols []string, head []byte, err error) {
	var read bytes.Buffer
	server := tls.Server(onlyReads{io.TeeReader(io.LimitReader(r, maxHello), &read)}, &tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			protocols = hello.SupportedProtos
			return nil, errHelloRead
		},
	})
	if err := server.Handshake(); !errors.Is(err, errHelloRead) {
		return nil, nil, err
	}
	return protocols, read.Bytes(), nil
}

// onlyReads is a connection to whose other end nothing is said.
type onlyReads struct{ io.Reader }

func (onlyReads) Write(b []byte) (int, error)      { return len(b), nil }
func (onlyReads) Close() error                     { return nil }
func (onlyReads) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (onlyReads) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (onlyReads) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (onlyReads) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (onlyReads) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
