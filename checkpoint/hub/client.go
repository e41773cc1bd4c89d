package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// DefaultEndpoint is where the hub is.
	DefaultEndpoint = "https://huggingface.co"
	// EndpointEnv and TokenEnv are the variables of the hub's own programs.
	EndpointEnv = "HF_ENDPOINT"
	TokenEnv    = "HF_TOKEN"

	maxRedirects = 5
	// maxAttempts in a row bring nothing before an error is given.
	maxAttempts = 6
	firstWait   = time.Second
	longestWait = time.Minute
	// silence ends a connection over which nothing comes.
	silence = time.Minute
)

// ErrSettings: the endpoint or the token is not one.
var ErrSettings = errors.New("setting of the hub")

// Client asks the hub.
type Client struct {
	endpoint *url.URL
	token    string
	http     *http.Client
	wait     func(ctx context.Context, d time.Duration) error
	retrying func(Retry) // see Options; nil tells nobody
}

// NewClient makes a client from the environment: HF_ENDPOINT and HF_TOKEN. The error wraps ErrSettings.
func NewClient(getenv func(string) string) (*Client, error) {
	text := strings.TrimRight(getenv(EndpointEnv), "/")
	if text == "" {
		text = DefaultEndpoint
	}
	endpoint, err := url.Parse(text)
	if err != nil || endpoint.Host == "" || endpoint.User != nil || endpoint.RawQuery != "" || endpoint.Scheme != "https" && endpoint.Scheme != "http" {
		return nil, fmt.Errorf("hub: %w: %s is %.80q: want the address of a mirror, such as %s", ErrSettings, EndpointEnv, text, DefaultEndpoint)
	}
	token := strings.TrimSpace(getenv(TokenEnv))
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("hub: %w: %s has characters that are in no token: copy it again from %s/settings/tokens", ErrSettings, TokenEnv, DefaultEndpoint)
	}
	if token != "" && endpoint.Scheme == "http" && !loopback(endpoint.Hostname()) {
		return nil, fmt.Errorf("hub: %w: %s is %s, over which others could read %s: give it with https://, or unset %s", ErrSettings, EndpointEnv, endpoint, TokenEnv, TokenEnv)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() // proxies as in the environment
	transport.ResponseHeaderTimeout = silence
	transport.DisableCompression = true // lengths and checksums are of what is stored
	return &Client{
		endpoint: endpoint, token: token, wait: wait,
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answer is a response, with what the hub itself said of a file before it led elsewhere.
type answer struct {
	*http.Response
	commit string // X-Repo-Commit
	sum    string // X-Linked-Etag or ETag
}

// get asks the hub once, from a byte of the file on, and follows where it leads. The token goes to the hub's host alone. Errors are
// *refusal, or those of the connection without the query of an address, which may be a key.
func (c *Client) get(ctx context.Context, at *url.URL, from int64) (answer, error) {
	var a answer
	for range maxRedirects {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			return a, err
		}
		r.Header.Set("User-Agent", "pnode")
		if from > 0 {
			r.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
		}
		own := at.Scheme == c.endpoint.Scheme && at.Host == c.endpoint.Host
		if own && c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		response, err := c.http.Do(r)
		if err != nil {
			return a, withoutQuery(at, err)
		}
		if own {
			a.take(response.Header)
		}
		if response.StatusCode < 300 || response.StatusCode >= 400 {
			a.Response = response
			if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusPartialContent {
				return a, refused(response, own)
			}
			return a, nil
		}
		_ = response.Body.Close() // nothing is read of it
		next, err := at.Parse(response.Header.Get("Location"))
		if err != nil || next.Scheme != "https" && next.Scheme != at.Scheme {
			return a, fmt.Errorf("%s leads to an address that is not followed", at.Host)
		}
		at = next
	}
	return a, fmt.Errorf("%s leads from one address to another more than %d times", c.endpoint.Host, maxRedirects)
}

// take notes what the hub says of a file.
func (a *answer) take(h http.Header) {
	if commit := h.Get("X-Repo-Commit"); commit != "" {
		a.commit = commit
	}
	for _, name := range []string{"Etag", "X-Linked-Etag"} {
		if sum := strings.Trim(strings.TrimPrefix(h.Get(name), "W/"), `"`); sum != "" {
			a.sum = sum
		}
	}
}

// withoutQuery drops the address from an error of the connection: its query may be a key to the file.
func withoutQuery(at *url.URL, err error) error {
	inner := (*url.Error)(nil)
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return fmt.Errorf("%s: %w", at.Host, err)
}

// refusal is an answer with neither a file nor another address.
type refusal struct {
	status  int
	own     bool          // of the hub, not of a host that it led to
	code    string        // X-Error-Code: what it is about
	message string        // of the hub, for people
	after   time.Duration // when to ask again; 0 if it does not say
}

func (r *refusal) Error() string {
	who := "the hub"
	if !r.own {
		who = "the host of the files"
	}
	text := fmt.Sprintf("%s answers %d %s", who, r.status, http.StatusText(r.status))
	if r.message != "" {
		text += ": " + r.message
	}
	return text
}

// passing reports whether the same question may be answered later: addresses of other hosts are good for a time only.
func (r *refusal) passing() bool {
	return !r.own || r.status == http.StatusTooManyRequests || r.status == http.StatusRequestTimeout || r.status >= 500
}

// refused reads a refusal, and closes the response.
func refused(response *http.Response, own bool) *refusal {
	_ = response.Body.Close() // the headers say all
	const longest = 200
	message := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, response.Header.Get("X-Error-Message"))
	r := &refusal{status: response.StatusCode, own: own, code: response.Header.Get("X-Error-Code"), message: message[:min(len(message), longest)]}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		r.after = min(time.Duration(seconds)*time.Second, 5*longestWait)
	}
	return r
}

// again calls ask until it brings an end, or maxAttempts in a row bring nothing. ask reports whether it brought something.
func (c *Client) again(ctx context.Context, ask func(ctx context.Context) (brought bool, err error)) error {
	for attempt := 0; ; attempt++ {
		brought, err := ask(ctx)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if fatal := (final{}); errors.As(err, &fatal) {
			return fatal.error
		}
		if brought {
			attempt = 0
		}
		no := (*refusal)(nil)
		if errors.As(err, &no) && !no.passing() || attempt+1 >= maxAttempts {
			return err
		}
		delay := min(firstWait<<attempt, longestWait)
		if no != nil && no.after > 0 {
			delay = no.after
		}
		if c.retrying != nil {
			c.retrying(Retry{Why: err, Wait: delay, Left: maxAttempts - attempt - 1})
		}
		if err := c.wait(ctx, delay); err != nil {
			return err
		}
	}
}

// final is an error after which it makes no sense to ask again.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// watched reads a body, and cancels the request where nothing comes for a while.
type watched struct {
	body  io.Reader
	timer *time.Timer
}

// watch returns a context for a request, and a function that wraps the body of its answer. stop ends both.
func watch(ctx context.Context) (_ context.Context, body func(io.Reader) io.Reader, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(silence, func() { cancel(errSilent) })
	body = func(r io.Reader) io.Reader { return &watched{body: r, timer: timer} }
	return ctx, body, func() { timer.Stop(); cancel(nil) }
}

var errSilent = fmt.Errorf("nothing came for %v", silence)

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	if n > 0 {
		w.timer.Reset(silence)
	}
	return n, err
}
