package websocket

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"pnode/planner/plan"
)

const (
	// maxResponse bounds a server's answer to a handshake, maxStatus what is told of its words, each in bytes.
	maxResponse = 16 << 10
	maxStatus   = 60
)

// AnswerError says that a web server answers, and makes no WebSocket: one that has no such page, or one in front of a node
// that does not hand the request on.
type AnswerError struct {
	// Status holds the server's words, such as "404 Not Found".
	Status string
}

func (e *AnswerError) Error() string {
	return "a web server answers " + e.Status + " where a WebSocket is asked for"
}

// answer returns what a server says to a client's key (RFC 6455, section 4.2.2).
func answer(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Accept takes over the connection of a request that asks for a WebSocket. Other requests are answered, and the error says
// what was wrong with them.
func Accept(w http.ResponseWriter, r *http.Request) (net.Conn, error) {
	key := r.Header.Get("Sec-WebSocket-Key")
	switch decoded, err := base64.StdEncoding.DecodeString(key); {
	case r.Method != http.MethodGet || !holds(r.Header, "Connection", "upgrade") || !holds(r.Header, "Upgrade", "websocket"):
		w.Header().Set("Upgrade", "websocket")
		http.Error(w, "a WebSocket is served here", http.StatusUpgradeRequired)
		return nil, errors.New("websocket: request asks for no WebSocket")
	case err != nil || len(decoded) != 16 || r.Header.Get("Sec-WebSocket-Version") != "13":
		w.Header().Set("Sec-WebSocket-Version", "13")
		http.Error(w, "want a key of 16 bytes and version 13", http.StatusBadRequest)
		return nil, errors.New("websocket: bad key or version")
	}
	raw, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "want HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return nil, fmt.Errorf("websocket: %w", err)
	}
	if buffered.Reader.Buffered() > 0 {
		raw.Close()
		return nil, errors.New("websocket: the client did not wait for the answer")
	}
	buffered.Reader.Reset(raw)
	response := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + answer(key) + "\r\n\r\n"
	if _, err := io.WriteString(raw, response); err != nil {
		raw.Close()
		return nil, err
	}
	return &conn{Conn: raw, in: buffered.Reader}, nil
}

// Client asks the server at the other end of raw for a WebSocket at the path. It owns raw from now on, and closes it if
// it fails.
func Client(ctx context.Context, raw net.Conn, host, path string) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	c, err := ask(raw, host, path)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		raw.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("websocket: %w", err)
	}
	return c, nil
}

func ask(raw net.Conn, host, path string) (net.Conn, error) {
	var nonce [16]byte
	rand.Read(nonce[:])
	key := base64.StdEncoding.EncodeToString(nonce[:])
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}, Host: host, Header: http.Header{
		"Upgrade": {"websocket"}, "Connection": {"Upgrade"}, "Sec-Websocket-Key": {key}, "Sec-Websocket-Version": {"13"}, "User-Agent": {""},
	}}
	if err := r.Write(raw); err != nil {
		return nil, err
	}
	bounded := &io.LimitedReader{R: raw, N: maxResponse}
	in := bufio.NewReader(bounded)
	response, err := http.ReadResponse(in, r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		return nil, &AnswerError{plan.Clip(response.Status, maxStatus)}
	}
	if h := response.Header; !holds(h, "Upgrade", "websocket") || !holds(h, "Connection", "upgrade") || h.Get("Sec-WebSocket-Accept") != answer(key) {
		return nil, &AnswerError{"101 without the headers of a WebSocket"}
	}
	bounded.N = math.MaxInt64
	return &conn{Conn: raw, client: true, in: in}, nil
}

// holds reports whether a header lists a token, in any case of letters.
func holds(h http.Header, name, token string) bool {
	for _, v := range h.Values(name) {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}
