package notice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 64 << 10
	// dialTimeout bounds reaching a service that is on this machine's own host.
	dialTimeout = 2 * time.Second
	// askTimeout bounds a question and its answer.
	askTimeout = 5 * time.Second
)

// client asks one metadata service.
type client struct {
	base string
	http *http.Client
}

// statusError is an answer with another status than 200.
type statusError struct {
	path   string
	status int
}

func (e statusError) Error() string {
	return fmt.Sprintf("%s: status %d %s", e.path, e.status, http.StatusText(e.status))
}

// status reports whether an error is an answer with that status.
func status(err error, want int) bool {
	var s statusError
	return errors.As(err, &s) && s.status == want
}

// newClient returns a client for a service; dial is nil but in tests. It asks no proxy and follows no redirect.
func newClient(base string, dial func(context.Context, string, string) (net.Conn, error)) client {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return client{base, &http.Client{
		Transport: &http.Transport{
			Proxy: nil, DialContext: dial, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute,
			MaxResponseHeaderBytes: maxAnswer, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// question is one request to a metadata service.
type question struct {
	method, path string
	header       map[string]string
	body         io.Reader
	timeout      time.Duration // 0 is askTimeout
	proof        string        // a header with which the answer shows that the service made it
}

// ask returns the body of an answer with status 200, and its headers.
func (c client) ask(ctx context.Context, q question) (body []byte, header http.Header, err error) {
	if q.timeout == 0 {
		q.timeout = askTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, q.method, c.base+q.path, q.body)
	if err != nil {
		return nil, nil, err
	}
	for name, value := range q.header {
		request.Header.Set(name, value)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, nil, err
	case len(body) > maxAnswer:
		return nil, nil, fmt.Errorf("%s: the answer has more than %d bytes", q.path, maxAnswer)
	case answer.StatusCode != http.StatusOK:
		return nil, nil, statusError{q.path, answer.StatusCode}
	case q.proof != "" && answer.Header.Get(q.proof) == "":
		return nil, nil, fmt.Errorf("%s: the answer lacks the header %s: something else than the metadata service answered", q.path, q.proof)
	}
	return body, answer.Header, nil
}
