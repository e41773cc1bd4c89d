package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

const (
	// dialTimeout bounds the first answer of a node.
	dialTimeout = 10 * time.Second
	// maxReplyBytes bounds a reply; the status of a large roster is far below.
	maxReplyBytes = 16 << 20
	// maxEventBytes bounds one line of the stream of events.
	maxEventBytes = 1 << 20
)

// Client talks to one running node.
type Client struct {
	dir     string
	address Address
	http    *http.Client
}

// Dial finds the node that runs in dir and checks that it answers. dir may also be the
// folder of a run of several local nodes (`pnode train --local`): then it is the first of
// them that answers. The error wraps ErrNoNode or ErrUnreachable and says what to do.
func Dial(ctx context.Context, dir string) (*Client, error) {
	c, err := DialThrough(ctx, dir, nil)
	if !errors.Is(err, ErrNoNode) {
		return c, err
	}
	nodes, _ := fs.Glob(os.DirFS(filepath.Clean(dir)), "node-*") // in order; the pattern is well formed
	for _, node := range nodes {
		if c, nodeErr := DialThrough(ctx, filepath.Join(dir, node), nil); nodeErr == nil {
			return c, nil
		}
	}
	return nil, err
}

// Connect opens a connection, as net.Dialer.DialContext does.
type Connect func(ctx context.Context, network, address string) (net.Conn, error)

// DialThrough is Dial for the node of one folder, whose address is reached by connect: its loopback may be that of a network
// namespace. A nil connect is the usual one.
func DialThrough(ctx context.Context, dir string, connect Connect) (*Client, error) {
	address, err := readAddress(dir)
	if err != nil {
		return nil, err
	}
	// No proxy of the environment stands between two processes of one machine.
	c := &Client{dir: dir, address: address, http: &http.Client{Transport: &http.Transport{DialContext: connect}}}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if _, err := c.Status(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// PID is the process of the node.
func (c *Client) PID() int { return c.address.PID }

// Dir is the folder in which the node runs.
func (c *Client) Dir() string { return c.dir }

// Page is the URL of the node's page, key included.
func (c *Client) Page() string { return c.address.Page }

// AdmissionPage is the URL of the page with the key, too, by which it lets machines in. It is for the user's own browser on this machine.
func (c *Client) AdmissionPage() string {
	if c.address.Admission == "" {
		return c.address.Page
	}
	return c.address.Page + "." + c.address.Admission
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks for a snapshot.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var st Status
	err := c.call(ctx, http.MethodGet, "/v1/status", nil, &st)
	return st, err
}

// BriefStatus asks for what fits on a screen or two, however many members there are.
func (c *Client) BriefStatus(ctx context.Context) (Status, error) {
	var st Status
	err := c.call(ctx, http.MethodGet, "/v1/status?brief", nil, &st)
	return st, err
}

// History asks for the loss curves, and what happened.
func (c *Client) History(ctx context.Context) (h History, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/history", nil, &h)
	return h, err
}

// Checkpoints lists what the node keeps.
func (c *Client) Checkpoints(ctx context.Context) (CheckpointList, error) {
	var list CheckpointList
	err := c.call(ctx, http.MethodGet, "/v1/checkpoints", nil, &list)
	return list, err
}

// Profiles asks what plans know of devices and lines, BriefProfiles for what of that fits on a screen or two.
func (c *Client) Profiles(ctx context.Context) (p Profiles, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/profiles", nil, &p)
	return p, err
}

// BriefProfiles is documented at Profiles.
func (c *Client) BriefProfiles(ctx context.Context) (p Profiles, err error) {
	err = c.call(ctx, http.MethodGet, "/v1/profiles?brief", nil, &p)
	return p, err
}

// Metrics asks for what scrapers get, in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context) (string, error) {
	body, err := c.do(ctx, http.MethodGet, "/v1/metrics", nil)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxReplyBytes))
	if err != nil {
		return "", fmt.Errorf("%w: metrics in %s: %w", ErrUnreachable, c.dir, err)
	}
	return string(text), nil
}

// Leave asks the node to drain and go.
func (c *Client) Leave(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/leave", nil, nil)
}

// Recover has the node go on with its run without the majority of voters that is lost.
func (c *Client) Recover(ctx context.Context) (r Recovery, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/recover", nil, &r)
	return r, err
}

// Stop asks for a checkpoint and the end of the run on all its nodes.
func (c *Client) Stop(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/stop", nil, nil)
}

// Events are the kept history and then the events as they happen. The sequence ends with
// a nil error when the node closes the stream, and with an error when it breaks; whoever
// wants more subscribes again and skips the sequence numbers it has seen.
func (c *Client) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		body, err := c.do(ctx, http.MethodGet, "/v1/events", nil)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer body.Close()
		decodeEvents(body)(yield)
	}
}

// call does a request and decodes the reply into out, which may be nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	body, err := c.do(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(body, maxReplyBytes)).Decode(out); err != nil {
		return fmt.Errorf("%w: %s in %s: %w", ErrUnreachable, path, c.dir, err)
	}
	return nil
}

// do sends a request and gives the body of a good answer.
func (c *Client) do(ctx context.Context, method, path string, in any) (io.ReadCloser, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("api: %s: %w", path, err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.address.Addr+path, body)
	if err != nil {
		return nil, fmt.Errorf("api: %s: %w", path, err)
	}
	req.Header.Set("Authorization", "Bearer "+c.address.Token)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	return nil, c.refused(resp)
}

// unreachable explains why a request got no answer.
func (c *Client) unreachable(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: process %d of %s, %s: %w", ErrUnreachable, c.address.PID, c.dir, c.address.Addr, err)
	}
	cause := err // the innermost error, without the URL around it
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		cause = inner
	}
	return fmt.Errorf("%w in %s any more: %s is left over from process %d, which is gone (%w)",
		ErrNoNode, c.dir, AddressFile, c.address.PID, cause)
}

// refused turns an answer that is not 200 into an error.
func (c *Client) refused(resp *http.Response) error {
	if resp.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("%w in %s any more: another program answers at %s; remove %s",
			ErrNoNode, c.dir, c.address.Addr, filepath.Join(c.dir, AddressFile))
	}
	var reply errorReply
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReplyBytes)).Decode(&reply); err != nil || reply.Error == "" {
		reply.Error = resp.Status
	}
	kind := ErrRefused
	if resp.StatusCode == http.StatusServiceUnavailable {
		kind = ErrNotReady
	}
	return fmt.Errorf("%w: %s", kind, reply.Error)
}

// decodeEvents reads one event a line, each at most maxEventBytes long. It ends with the
// first error; a clean end of r just ends the sequence.
func decodeEvents(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(make([]byte, 0, 4<<10), maxEventBytes)
		for lines.Scan() {
			var e Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				yield(Event{}, fmt.Errorf("api: event %.80q: %w", lines.Bytes(), err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Event{}, fmt.Errorf("api: stream of events: %w", err))
		}
	}
}
