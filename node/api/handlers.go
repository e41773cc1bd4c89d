package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"pnode/node/api/page"
)

// errorReply is the body of every answer that is not 2xx, but for 401, which has none.
type errorReply struct {
	Error string `json:"error"`
}

// handler routes the endpoints after the checks, and the page, which has no secrets of its own,
// below its path.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", s.status)
	if s.options.Metrics != nil {
		mux.Handle("GET /v1/metrics", s.options.Metrics)
		mux.Handle("GET /metrics", s.options.Metrics) // where scrapers look
	}
	mux.HandleFunc("GET /v1/events", s.events)
	mux.HandleFunc("GET /v1/history", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, s.options.Node.History(), nil) })
	mux.HandleFunc("GET /v1/schedule.svg", s.schedule)
	mux.HandleFunc("GET /v1/checkpoints", func(w http.ResponseWriter, _ *http.Request) {
		list, err := s.options.Node.Checkpoints()
		s.answer(w, list, err)
	})
	mux.HandleFunc("GET /v1/profiles", func(w http.ResponseWriter, r *http.Request) {
		profiles, err := s.options.Node.Profiles()
		if r.URL.Query().Has("brief") {
			profiles = profiles.Brief()
		}
		s.answer(w, profiles, err)
	})
	mux.HandleFunc("GET /v1/invites", func(w http.ResponseWriter, _ *http.Request) {
		list, err := s.options.Node.Invites()
		s.answer(w, list, err)
	})
	mux.HandleFunc("GET /v1/newcomers", func(w http.ResponseWriter, _ *http.Request) {
		list, err := s.options.Node.Newcomers()
		s.answer(w, list, err)
	})
	mux.HandleFunc("POST /v1/admit", s.admit)
	mux.HandleFunc("GET "+admissionPath, s.admission)
	mux.HandleFunc("POST "+admissionPath+"/admit", s.admit)
	mux.HandleFunc("POST "+admissionPath+"/invite", s.pageInvite)
	mux.HandleFunc("POST /v1/model", s.model)
	mux.HandleFunc("POST /v1/keep", s.keep)
	mux.HandleFunc("POST /v1/chunk", s.chunk)
	mux.HandleFunc("POST /v1/invite", s.invite)
	mux.HandleFunc("POST /v1/revoke", s.revoke)
	mux.HandleFunc("POST /v1/leave", s.act(s.options.Node.Leave))
	mux.HandleFunc("POST /v1/recover", s.recover)
	mux.HandleFunc("POST /v1/stop", s.act(s.options.Node.Stop))
	return guard(Under(s.view.path(), page.Handler(), s.authorize(mux)))
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	st := s.snapshot()
	if r.URL.Query().Has("brief") {
		st = st.Brief()
	}
	s.answer(w, st, nil)
}

// snapshot returns the node's status as it is told.
func (s *Server) snapshot() Status { return s.options.Node.Status().Shown() }

// schedule answers with a picture that may style itself and do nothing else.
func (s *Server) schedule(w http.ResponseWriter, _ *http.Request) {
	var picture bytes.Buffer
	if err := s.options.Node.Schedule(&picture); err != nil {
		s.answer(w, nil, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "image/svg+xml")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	if _, err := w.Write(picture.Bytes()); err != nil {
		s.options.Log.Debug("api: picture not written", "error", err)
	}
}

// recover answers with how a run was recovered.
func (s *Server) recover(w http.ResponseWriter, r *http.Request) {
	var done Recovery
	err := patiently(w, r, func(ctx context.Context) (err error) {
		done, err = s.options.Node.Recover(ctx)
		return err
	})
	s.answer(w, done, err)
}

// act answers a request without a body by doing something.
func (s *Server) act(do func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, struct{}{}, patiently(w, r, do))
	}
}

// patiently does something that may take longer than the server's read deadline, which would cancel the request while it
// is worked on.
func patiently(w http.ResponseWriter, r *http.Request, do func(context.Context) error) error {
	if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	return do(ctx)
}

// answer answers with the result of a node's method, or its error.
func (s *Server) answer(w http.ResponseWriter, result any, err error) {
	switch {
	case err == nil:
		s.reply(w, http.StatusOK, result)
	case errors.Is(err, ErrNotReady):
		s.reply(w, http.StatusServiceUnavailable, errorReply{err.Error()})
	default:
		s.reply(w, http.StatusInternalServerError, errorReply{err.Error()})
	}
}

func (s *Server) reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.options.Log.Debug("api: reply not written", "error", err)
	}
}
