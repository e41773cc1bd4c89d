package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"pnode/node/api/page"
	"pnode/pipeline/wire/strict"
)

// Bounds on invites; no invite is for more uses than admission signs.
const (
	MaxInviteTTL  = 30 * 24 * time.Hour
	MaxInviteUses = 1024
)

// inviteRequest and inviteReply are the bodies of POST /v1/invite.
type inviteRequest struct {
	TTLS int64 `json:"ttl_s"`
	Uses int   `json:"uses"`
}

type inviteReply struct {
	Invite string `json:"invite"`
}

// errorReply is the body of every answer that is not 2xx, but for 401, which has none.
type errorReply struct {
	Error string `json:"error"`
}

// handler routes the endpoints after the checks, and the page, which has no secrets of its own,
// below its path.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", s.status)
	mux.HandleFunc("GET /v1/events", s.events)
	mux.HandleFunc("GET /v1/history", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, s.options.Node.History(), nil) })
	mux.HandleFunc("GET /v1/schedule.svg", s.schedule)
	mux.HandleFunc("GET /v1/checkpoints", func(w http.ResponseWriter, _ *http.Request) {
		list, err := s.options.Node.Checkpoints()
		s.answer(w, list, err)
	})
	mux.HandleFunc("POST /v1/invite", s.invite)
	mux.HandleFunc("POST /v1/leave", s.act(s.options.Node.Leave))
	mux.HandleFunc("POST /v1/stop", s.act(s.options.Node.Stop))
	return guard(under(s.view.path(), page.Handler(), s.authorize(mux)))
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	st := s.options.Node.Status()
	st.Loss, st.HeldOut, st.HeldOutF32 = finite(st.Loss), finite(st.HeldOut), finite(st.HeldOutF32)
	if st.Waiting != "" {
		st.TokensPerS, st.ETAS = 0, 0
	}
	s.answer(w, st, nil)
}

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

func (s *Server) invite(w http.ResponseWriter, r *http.Request) {
	var req inviteRequest
	body, err := io.ReadAll(r.Body) // bounded by authorize
	if err == nil {
		err = strict.Decode(body, &req)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("invite request: %w", err)
	case req.TTLS < 1 || req.TTLS > int64(MaxInviteTTL/time.Second):
		err = fmt.Errorf("ttl_s is %d: take 1 to %d", req.TTLS, int64(MaxInviteTTL/time.Second))
	case req.Uses < 1 || req.Uses > MaxInviteUses:
		err = fmt.Errorf("uses is %d: take 1 to %d", req.Uses, MaxInviteUses)
	}
	if err != nil {
		s.reply(w, http.StatusBadRequest, errorReply{err.Error()})
		return
	}
	invite, err := s.options.Node.Invite(time.Duration(req.TTLS)*time.Second, req.Uses)
	s.answer(w, inviteReply{invite}, err)
}

// act answers a request without a body by doing something.
func (s *Server) act(do func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// The server's read deadline would cancel the request while it is worked on.
		err := http.NewResponseController(w).SetReadDeadline(time.Time{})
		if err == nil {
			ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
			defer cancel()
			err = do(ctx)
		}
		s.answer(w, struct{}{}, err)
	}
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
