package websocket

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// pair returns the two ends of a WebSocket over loopback.
func pair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	accepted := make(chan net.Conn, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := Accept(w, r)
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}))
	t.Cleanup(s.Close)
	raw, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client, err = Client(t.Context(), raw, "example.org", "/x")
	if err != nil {
		t.Fatal(err)
	}
	server = <-accepted
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// Bytes come out as they went in, in both directions and in pieces of any size.
func TestBytesGoThrough(t *testing.T) {
	client, server := pair(t)
	for _, ends := range [][2]net.Conn{{client, server}, {server, client}} {
		for _, size := range []int{1, 125, 126, 65535, 65536, 300_001} {
			sent := make([]byte, size)
			for i := range sent {
				sent[i] = byte(i * 7)
			}
			go ends[0].Write(sent)
			got := make([]byte, size)
			for at := 0; at < size; {
				n, err := ends[1].Read(got[at:min(size, at+1021)])
				if err != nil {
					t.Fatal(err)
				}
				at += n
			}
			if !bytes.Equal(got, sent) {
				t.Errorf("%d bytes came out differently", size)
			}
		}
	}
	client.Close()
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the peer's close: %v, want io.EOF", err)
	}
}

// A deadline ends a Read and a Write that wait, and the Read can go on.
func TestDeadlines(t *testing.T) {
	client, server := pair(t)
	client.SetReadDeadline(time.Now().Add(-time.Second))
	if _, err := client.Read(make([]byte, 1)); err == nil || !err.(net.Error).Timeout() {
		t.Errorf("read after its deadline: %v", err)
	}
	client.SetReadDeadline(time.Time{})
	go server.Write([]byte("x"))
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
	blocked := make(chan error)
	go func() {
		var err error
		for err == nil { // until all buffers are full
			_, err = client.Write(make([]byte, 1<<20))
		}
		blocked <- err
	}()
	client.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	if err := <-blocked; !err.(net.Error).Timeout() {
		t.Errorf("write after its deadline: %v", err)
	}
}

// What is no request for a WebSocket is refused, and so is an answer that is none.
func TestBadHandshakes(t *testing.T) {
	for _, header := range []http.Header{
		{},
		{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"short"}, "Sec-Websocket-Version": {"13"}},
		{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="}, "Sec-Websocket-Version": {"12"}},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header = header
		w := httptest.NewRecorder()
		if _, err := Accept(w, r); err == nil || w.Code < 400 {
			t.Errorf("%v: %v, status %d", header, err, w.Code)
		}
	}
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
		"nonsense\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nX: " + strings.Repeat("y", maxResponse) + "\r\n\r\n",
	} {
		here, there := net.Pipe()
		go func() {
			http.ReadRequest(bufio.NewReader(there))
			io.WriteString(there, answer)
			there.Close()
		}()
		if _, err := Client(t.Context(), here, "h", "/"); err == nil {
			t.Errorf("answer %.60q is taken for a WebSocket", answer)
		}
	}
	here, _ := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Client(ctx, here, "h", "/"); !errors.Is(err, context.Canceled) {
		t.Errorf("a handshake that is given up: %v", err)
	}
}

// wire is a connection that reads from bytes and forgets what is written.
type wire struct {
	net.Conn
	io.Reader
}

func (w wire) Read(b []byte) (int, error)       { return w.Reader.Read(b) }
func (w wire) Write(b []byte) (int, error)      { return len(b), nil }
func (w wire) SetWriteDeadline(time.Time) error { return nil }

func ofBytes(b []byte, client bool) *conn {
	return &conn{Conn: wire{Reader: bytes.NewReader(b)}, in: bufio.NewReader(bytes.NewReader(b)), client: client}
}

// Frames that are not spoken end the stream.
func TestBadFrames(t *testing.T) {
	for name, frame := range map[string][]byte{
		"text":              {0x81, 0x01, 'a'},
		"reserved bits":     {0xC2, 0x01, 'a'},
		"masked by server":  {0x82, 0x81, 0, 0, 0, 0, 'a'},
		"long ping":         {0x89, 126, 0, 126},
		"ping in parts":     {0x09, 0x01, 'a'},
		"length of 63 bits": {0x82, 127, 0xFF, 0, 0, 0, 0, 0, 0, 0},
	} {
		if _, err := ofBytes(frame, true).Read(make([]byte, 10)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v, want a protocol error", name, err)
		}
	}
	if _, err := ofBytes([]byte{0x82, 0x01, 'a'}, false).Read(make([]byte, 10)); !errors.Is(err, ErrProtocol) {
		t.Errorf("a client's frame that is not masked: %v", err)
	}
	for name, frame := range map[string]string{"pings": "\x89\x01p", "pongs": "\x8A\x00", "empty data": "\x82\x00"} {
		if _, err := ofBytes([]byte(strings.Repeat(frame, maxEmpty)), true).Read(make([]byte, 10)); !errors.Is(err, ErrProtocol) {
			t.Errorf("nothing but %s: %v, want a protocol error", name, err)
		}
		few := strings.Repeat(frame, maxEmpty-1) + "\x82\x01a"
		if n, err := ofBytes([]byte(few), true).Read(make([]byte, 10)); n != 1 || err != nil {
			t.Errorf("data after some %s: %d bytes, %v", name, n, err)
		}
	}
}

// FuzzRead reads frames of any bytes: it ends, and gives no more than there is.
func FuzzRead(f *testing.F) {
	f.Add([]byte{0x82, 0x02, 'a', 'b', 0x89, 0x01, 'x', 0x82, 126, 0, 1, 'c', 0x88, 0x00}, true)
	f.Add([]byte{0x82, 0x81, 1, 2, 3, 4, 'a', 0x82, 0xFF, 0, 0, 0, 0, 0, 0, 0, 9}, false)
	f.Fuzz(func(t *testing.T, b []byte, client bool) {
		got, err := io.ReadAll(ofBytes(b, client))
		if len(got) > len(b) {
			t.Errorf("%d bytes of %d: %v", len(got), len(b), err)
		}
	})
}
