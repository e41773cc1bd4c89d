package metrics

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"pnode/node/api"
)

// Path is where scrapers look.
const Path = "/metrics"

const (
	// scrapeTimeout bounds a scrape, mostScrapes how many there are at a time.
	scrapeTimeout = 10 * time.Second
	mostScrapes   = 4
	// mostConnections bounds the files of this process that others can take by asking: checkpoints and links need some, too.
	mostConnections = 16
	readTimeout     = 10 * time.Second
	idleTimeout     = 2 * time.Minute // scrapers come every minute, or more often
	maxHeader       = 16 << 10
)

// Exporter answers scrapes. Its methods may be called concurrently, Listen and Run once.
type Exporter struct {
	source   Source
	handler  http.Handler
	counts   counts
	errors   *log.Logger
	listener net.Listener // nil without an address of its own
}

// New returns an exporter of what a node knows, with the standard metrics of a process and of the Go runtime.
func New(s Source, log *slog.Logger) *Exporter {
	e := &Exporter{source: s, errors: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	r := prometheus.NewRegistry() // not the default one: what libraries register there is theirs
	r.MustRegister(e, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	e.handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: mostScrapes, Timeout: scrapeTimeout,
		ErrorLog: e.errors,
	})
	return e
}

// Event counts what happened.
func (e *Exporter) Event(event api.Event) { e.counts.add(event) }

// Handler answers scrapes, whoever asks.
func (e *Exporter) Handler() http.Handler { return e.handler }

// Listen takes an address at which Run answers GET /metrics without a key, and says so; "" is none.
func (e *Exporter) Listen(address string, say func(string)) (err error) {
	if address == "" {
		return nil
	}
	if e.listener, err = net.Listen("tcp", address); err != nil {
		return fmt.Errorf("metrics: listen at %s: %w; name another address with --metrics", address, err)
	}
	text := fmt.Sprintf("metrics: http://%s%s", e.Addr(), Path)
	if !e.loopback() {
		text += "; whoever reaches this address can read them, without a key"
	}
	say(text)
	return nil
}

// Addr returns where Run answers; "" for nowhere.
func (e *Exporter) Addr() string {
	if e.listener == nil {
		return ""
	}
	return e.listener.Addr().String()
}

// loopback reports whether only programs of this machine reach the address.
func (e *Exporter) loopback() bool {
	at, ok := e.listener.Addr().(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// Run answers scrapes at the address of Listen until ctx ends. Without one it returns at once.
func (e *Exporter) Run(ctx context.Context) error {
	if e.listener == nil {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, e.handler)
	server := &http.Server{
		Handler: e.guard(mux), ConnState: bounded(mostConnections), ErrorLog: e.errors,
		ReadTimeout: readTimeout, WriteTimeout: 2 * scrapeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // a scrape that is cut is tried again
	defer stop()
	if err := server.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics: serve %s: %w", e.Addr(), err)
	}
	return nil
}

// bounded closes each new connection while there are as many as there may be.
func bounded(most int64) func(net.Conn, http.ConnState) {
	var open atomic.Int64
	return func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			if open.Add(1) > most {
				_ = c.Close()
			}
		case http.StateClosed:
			open.Add(-1)
		}
	}
}

// Close gives the address back where Run was not called.
func (e *Exporter) Close() error {
	if e.listener == nil {
		return nil
	}
	if err := e.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("metrics: close %s: %w", e.Addr(), err)
	}
	return nil
}

// guard refuses pages of browsers: nobody reads a run by having its user open a page. Where only this machine is answered, that is so
// of pages under a name that leads here, too (DNS rebinding). Elsewhere names are how machines are reached, and whoever reaches the
// address may read. Where a user gives the address itself, a browser says that the site is "none".
func (e *Exporter) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		if len(r.Header["Origin"]) > 0 || site != "" && site != "none" || e.loopback() && !api.Loopback(r.Host) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
