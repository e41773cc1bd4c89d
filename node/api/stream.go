package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// events streams the history, or what of it is newer than ?after=SEQ, and then what happens,
// until the client goes, the node's hub closes, or the server ends; then it still writes what
// is queued.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	var after uint64
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			s.reply(w, http.StatusBadRequest, errorReply{fmt.Sprintf("after is %.40q: want the sequence number of an event", text)})
			return
		}
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		s.reply(w, http.StatusServiceUnavailable, errorReply{fmt.Sprintf("all %d streams of events are taken: close one", maxStreams)})
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	st := stream{after: after, control: http.NewResponseController(w), encode: json.NewEncoder(w)}
	// The read deadline would end the stream.
	if err := errors.Join(st.control.SetReadDeadline(time.Time{}), st.extend(), st.control.Flush()); err != nil {
		return
	}
	defer func() { _ = st.extend() }() // for the end mark that net/http writes
	ch := s.options.Node.Events(r.Context())
	for {
		select {
		case e, ok := <-ch:
			if !ok || st.write(e, len(ch) == 0) != nil {
				return
			}
		case <-s.ending:
			st.drain(ch)
			return
		}
	}
}

// stream writes events to one client.
type stream struct {
	after   uint64 // events up to this one are left out
	control *http.ResponseController
	encode  *json.Encoder
}

// extend gives the next write its time.
func (s stream) extend() error {
	return s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
}

// write sends one event and flushes when no other waits; a client that leaves it unread
// for too long ends the stream.
func (s stream) write(e Event, flush bool) error {
	if err := s.extend(); err != nil {
		return err
	}
	if e.Seq > s.after {
		if err := s.encode.Encode(e); err != nil {
			return err
		}
	}
	if !flush {
		return nil
	}
	return s.control.Flush()
}

// drain writes what is queued already and waits for nothing.
func (s stream) drain(ch <-chan Event) {
	for {
		select {
		case e, ok := <-ch:
			if !ok || s.write(e, false) != nil {
				return
			}
		default:
			return
		}
	}
}
