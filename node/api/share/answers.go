package share

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"pnode/node/api"
	"pnode/node/api/page"
)

// Node tells what is shown. Its methods are called concurrently; errors wrap api.ErrNotReady where there is nothing yet.
type Node interface {
	Status(ctx context.Context) (api.Status, error)
	History(ctx context.Context) (api.History, error)
	Profiles(ctx context.Context) (api.Profiles, error)
	Schedule(ctx context.Context) ([]byte, error)
	Events(ctx context.Context, after uint64) iter.Seq2[api.Event, error]
}

// freshFor is how long an answer of the node is given to all who ask.
const freshFor = time.Second

// answer holds what a request gets.
type answer struct {
	code int
	kind string // media type
	body []byte
}

// memo gives the same answer for a moment.
type memo struct {
	ask  func(context.Context) answer
	mu   sync.Mutex // guards at and last
	at   time.Time
	last answer
}

// get returns the newest answer; who comes while the node is asked waits for that one.
func (m *memo) get(ctx context.Context) answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); m.at.IsZero() || now.Sub(m.at) >= freshFor {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		m.last = m.ask(ctx)
		m.at = time.Now()
	}
	return m.last
}

// looks returns the requests that are answered, but for events, by their paths.
func (s *Server) looks() map[string]*memo {
	show, node := shownOf(s.options.Dir), s.options.Node
	return map[string]*memo{
		"/v1/status": {ask: func(ctx context.Context) answer {
			st, err := node.Status(ctx)
			return encode(show.status(st), err)
		}},
		"/v1/history": {ask: func(ctx context.Context) answer {
			h, err := node.History(ctx)
			return encode(show.history(h), err)
		}},
		"/v1/profiles": {ask: func(ctx context.Context) answer {
			p, err := node.Profiles(ctx)
			return encode(cleaned(show, p), err)
		}},
		"/v1/schedule.svg": {ask: func(ctx context.Context) answer {
			picture, err := node.Schedule(ctx)
			if err != nil {
				return failed(err)
			}
			return answer{http.StatusOK, "image/svg+xml", picture}
		}},
	}
}

// encode returns an answer in JSON.
func encode(value any, err error) answer {
	if err != nil {
		return failed(err)
	}
	body, err := json.Marshal(value)
	if err != nil {
		return failed(err)
	}
	return answer{http.StatusOK, "application/json", body}
}

// failed says that the node has nothing yet, or does not answer, and no more.
func failed(err error) answer {
	if errors.Is(err, api.ErrNotReady) {
		return answer{code: http.StatusServiceUnavailable}
	}
	return answer{code: http.StatusBadGateway}
}

// handler answers requests that know the secret.
func (s *Server) handler() http.Handler {
	key := api.NewSecret(s.key)
	looks := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		site := r.Header.Get("Sec-Fetch-Site")
		switch {
		case !strings.HasPrefix(r.URL.Path, "/v1/"):
			s.refuse(w, r, http.StatusNotFound)
		case !key.Is(given) || !ok || site != "" && site != "same-origin" && site != "none":
			s.refuse(w, r, http.StatusForbidden)
		case r.URL.Path == "/v1/events":
			s.events(w, r)
		default:
			s.look(w, r)
		}
	})
	inner := api.Under(api.PagePath(s.key), page.Handler(), looks)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		origin := r.Header.Get("Origin")
		switch {
		case !s.budget.spend(addressOf(r.RemoteAddr), 1):
			w.WriteHeader(http.StatusTooManyRequests)
		case r.Method != http.MethodGet || r.Host != s.host() || len(r.Header["Origin"]) > 0 && origin != s.origin(): // or a name that leads here, a page of another site
			s.refuse(w, r, http.StatusForbidden)
		default:
			r.Body = http.MaxBytesReader(w, r.Body, 0) // nothing that is answered has one
			inner.ServeHTTP(w, r)
		}
	})
}

// refuse answers with a code and nothing else, which costs who asks more than an answer does.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, code int) {
	s.budget.spend(addressOf(r.RemoteAddr), wrongCosts)
	w.WriteHeader(code)
}

// look answers with what the node says.
func (s *Server) look(w http.ResponseWriter, r *http.Request) {
	m, ok := s.answers[r.URL.Path]
	if !ok {
		s.refuse(w, r, http.StatusNotFound)
		return
	}
	a := m.get(s.running)
	if a.kind != "" {
		w.Header().Set("Content-Type", a.kind)
	}
	if a.kind == "image/svg+xml" {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
	}
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body) // a browser that goes has what it wants
}

// events streams what happens after ?after=SEQ until the looker, the node or the server goes.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		s.refuse(w, r, http.StatusNotFound)
		return
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	control := http.NewResponseController(w)
	extend := func() error { return control.SetWriteDeadline(time.Now().Add(3 * requestTimeout)) }
	w.Header().Set("Content-Type", "application/x-ndjson")
	if errors.Join(control.SetReadDeadline(time.Time{}), extend(), control.Flush()) != nil { // the read deadline would end the stream
		return
	}
	show, out := shownOf(s.options.Dir), json.NewEncoder(w)
	for e, err := range s.options.Node.Events(r.Context(), after) {
		if err != nil {
			return
		}
		e, ok := show.event(e)
		if ok && (extend() != nil || out.Encode(e) != nil || control.Flush() != nil) {
			return
		}
	}
	_ = extend() // for the end mark that net/http writes
}
