package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
)

// View looks at the node of a folder as its page does: with the page's key, which opens nothing but looks. It goes on with a node that is
// started again there.
type View struct {
	dir  string
	http *http.Client
}

// OpenView returns the view of the node that runs in a folder.
func OpenView(dir string) *View {
	return &View{dir, &http.Client{Transport: &http.Transport{}}} // no proxy of the environment stands between two processes of one machine
}

// client returns a client with the page's key, for where the page is now.
func (v *View) client() (*Client, error) {
	var page view
	if err := readFile(v.dir, ViewFile, &page); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s", ErrNoNode, v.dir)
	} else if err != nil {
		return nil, err
	}
	return &Client{dir: v.dir, address: Address{Addr: page.Addr, Token: page.Key}, http: v.http}, nil
}

// looked returns what do gets of a node.
func looked[T any](v *View, do func(*Client) (T, error)) (answer T, err error) {
	c, err := v.client()
	if err != nil {
		return answer, err
	}
	return do(c)
}

// Status returns the brief status of the node.
func (v *View) Status(ctx context.Context) (Status, error) {
	return looked(v, func(c *Client) (Status, error) { return c.BriefStatus(ctx) })
}

// History returns the loss curves, and what happened.
func (v *View) History(ctx context.Context) (History, error) {
	return looked(v, func(c *Client) (History, error) { return c.History(ctx) })
}

// Profiles returns the brief profiles of machines and lines.
func (v *View) Profiles(ctx context.Context) (Profiles, error) {
	return looked(v, func(c *Client) (Profiles, error) { return c.BriefProfiles(ctx) })
}

// Schedule returns the picture of a step as SVG; the error wraps ErrNotReady while there is none.
func (v *View) Schedule(ctx context.Context) ([]byte, error) {
	return looked(v, func(c *Client) ([]byte, error) {
		body, err := c.do(ctx, http.MethodGet, "/v1/schedule.svg", nil)
		if err != nil {
			return nil, err
		}
		defer body.Close()
		return io.ReadAll(io.LimitReader(body, maxReplyBytes))
	})
}

// Events returns what happens after an event, as Client.Events does.
func (v *View) Events(ctx context.Context, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		body, err := looked(v, func(c *Client) (io.ReadCloser, error) {
			return c.do(ctx, http.MethodGet, fmt.Sprintf("/v1/events?after=%d", after), nil)
		})
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer body.Close()
		decodeEvents(body)(yield)
	}
}

// Close drops idle connections.
func (v *View) Close() { v.http.CloseIdleConnections() }
