package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"

	"pnode/node/plain"
	"pnode/planner/plan"
)

// Names has lines of a log call members by their names in place of their peer IDs, which tell people nothing, and leaves out which package
// says so. The zero value knows no names. Its methods may be called concurrently.
type Names struct{ of atomic.Value }

// Know has names looked up from now on; of returns an ID that it has no name for as it is.
func (n *Names) Know(of func(plan.PeerID) string) { n.of.Store(of) }

// Log returns a log whose lines go to another one. A log of level debug keeps the IDs: what it is read beside has them.
func (n *Names) Log(to *slog.Logger) *slog.Logger {
	if to.Enabled(context.Background(), slog.LevelDebug) {
		return to
	}
	return slog.New(naming{to.Handler(), n})
}

// naming is the handler of Names.Log.
type naming struct {
	slog.Handler
	names *Names
}

// Handle implements slog.Handler.
func (h naming) Handle(ctx context.Context, r slog.Record) error {
	named := slog.NewRecord(r.Time, r.Level, plain.Text(errors.New(r.Message)), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		named.AddAttrs(h.named(a))
		return true
	})
	return h.Handler.Handle(ctx, named)
}

// WithAttrs implements slog.Handler.
func (h naming) WithAttrs(attrs []slog.Attr) slog.Handler {
	return naming{h.Handler.WithAttrs(attrs), h.names}
}

// WithGroup implements slog.Handler.
func (h naming) WithGroup(name string) slog.Handler {
	return naming{h.Handler.WithGroup(name), h.names}
}

// peerIDs finds the IDs of nodes in a text, as libp2p writes those of Ed25519 keys, and the addresses that end with one.
var peerIDs = regexp.MustCompile(`(/p2p/)?\b12D3KooW[1-9A-HJ-NP-Za-km-z]{44}\b`)

// named returns an attribute with names in it. An address stays one that can be copied. The handler gets a value as it is whose method
// panics, as that of a nil pointer may.
func (h naming) named(a slog.Attr) (named slog.Attr) {
	defer func() {
		if recover() != nil {
			named = a
		}
	}()
	of, ok := h.names.of.Load().(func(plan.PeerID) string)
	v := a.Value.Resolve()
	if !ok || v.Kind() != slog.KindString && v.Kind() != slog.KindAny {
		return a
	}
	text := ""
	switch v := v.Any().(type) {
	case string:
		text = v
	case plan.PeerID:
		text = string(v)
	case []plan.PeerID:
		var all []string
		for _, p := range v {
			all = append(all, string(p))
		}
		text = strings.Join(all, ", ")
	case error:
		text = plain.Text(v)
	case fmt.Stringer:
		text = v.String()
	default:
		return a
	}
	return slog.String(a.Key, withNames(text, of))
}

// shortIDs finds the ends of such IDs, as plan.PeerID.Short writes them where no names are known.
var shortIDs = regexp.MustCompile(`…[1-9A-HJ-NP-Za-km-z]{8}\b`)

func withNames(text string, of func(plan.PeerID) string) string {
	text = shortIDs.ReplaceAllStringFunc(text, func(short string) string {
		if name := of(plan.PeerID(short)); !strings.Contains(name, short) { // else it may follow its name already
			return name
		}
		return short
	})
	return peerIDs.ReplaceAllStringFunc(text, func(id string) string {
		if strings.HasPrefix(id, "/p2p/") {
			return id
		}
		return of(plan.PeerID(id))
	})
}

// namedError is an error whose text has names in it.
type namedError struct {
	error
	text string
}

func (e namedError) Error() string { return e.text }
func (e namedError) Unwrap() error { return e.error }

// Error returns an error whose text calls members by their names, and which wraps err; err itself where it names nobody known.
func (n *Names) Error(err error) error {
	of, ok := n.of.Load().(func(plan.PeerID) string)
	if !ok {
		return err
	}
	return named(err, of)
}

func named(err error, of func(plan.PeerID) string) error {
	if err == nil {
		return nil
	}
	if text := withNames(err.Error(), of); text != err.Error() {
		return namedError{err, withNames(plain.Text(err), of)}
	}
	return err
}
