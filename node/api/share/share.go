package share

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/node/api"
	"pnode/swarm/listen"
)

// Bounds on what lookers can hold on to.
const (
	maxHeaderBytes = 16 << 10
	maxStreams     = 16 // half of those that a node has
	requestTimeout = 10 * time.Second
	idleTimeout    = time.Minute
	closeTimeout   = 5 * time.Second
)

var (
	// ErrNoAddress: this machine is in no local network.
	ErrNoAddress = errors.New("share: no address of a local network")
	// ErrAddress: the address is not one to share at.
	ErrAddress = errors.New("share: wrong address")
)

// Options say what to show, and where.
type Options struct {
	Node Node
	// Dir is the node's folder, which texts do not name.
	Dir string
	// At is an address of this machine in a local network; port 0 is any.
	At netip.AddrPort
	// Unencrypted serves HTTP without TLS.
	Unencrypted bool
	// Log is where failures of connections go; nil is nowhere.
	Log *slog.Logger
}

// Server shows a node's page, listening already.
type Server struct {
	options     Options
	listener    net.Listener
	at          netip.AddrPort
	key         string
	tls         *tls.Config
	fingerprint string
	budget      *budget
	streams     chan struct{} // one token for each stream of events
	answers     map[string]*memo
	running     context.Context // while Run runs
}

// Address returns where to share, of "IP" or "IP:PORT"; empty is the likeliest address of a local network.
func Address(text string) (netip.AddrPort, error) { return address(text, listen.LAN()) }

func address(text string, lan []netip.Addr) (netip.AddrPort, error) {
	if text == "" {
		if len(lan) == 0 {
			return netip.AddrPort{}, fmt.Errorf("%w: connect this machine to a network, name an address of it with --listen IP, or have the other machine forward the page: `ssh -L PORT:127.0.0.1:PORT HOST` with the URL of `pnode watch --print`", ErrNoAddress)
		}
		return netip.AddrPortFrom(lan[0], 0), nil
	}
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		ip, ipErr := netip.ParseAddr(text)
		if ipErr != nil {
			return at, fmt.Errorf("%w: --listen is %.60q: want IP or IP:PORT, as 192.168.1.7 or 192.168.1.7:8443", ErrAddress, text)
		}
		at = netip.AddrPortFrom(ip, 0)
	}
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	switch {
	case at.Addr().IsUnspecified():
		return at, fmt.Errorf("%w: --listen is %s, every network of this machine: name one of its addresses%s", ErrAddress, text, such(lan))
	case !listen.Local(at.Addr()) || at.Addr().Zone() != "":
		return at, fmt.Errorf("%w: --listen is %s, which is of no local network: name an address that only machines near it reach%s", ErrAddress, text, such(lan))
	}
	return at, nil
}

// such names an address that would do.
func such(lan []netip.Addr) string {
	if len(lan) == 0 {
		return ""
	}
	return ", as " + lan[0].String()
}

// Listen takes the address. Requests are answered once Run runs.
func Listen(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{options: o, key: rand.Text(), budget: newBudget(time.Now), streams: make(chan struct{}, maxStreams)}
	s.answers = s.looks()
	if !o.Unencrypted {
		var err error
		if s.tls, s.fingerprint, err = certificate(o.At.Addr(), time.Now()); err != nil {
			return nil, fmt.Errorf("share: certificate: %w", err)
		}
	}
	l, err := net.Listen("tcp", o.At.String())
	if err != nil {
		return nil, fmt.Errorf("share: %w: name another address or port with --listen IP:PORT, an address of this machine%s", err, such(listen.LAN()))
	}
	s.at = l.Addr().(*net.TCPAddr).AddrPort()
	s.at = netip.AddrPortFrom(s.at.Addr().Unmap(), s.at.Port())
	s.listener = newPlaces(l)
	return s, nil
}

// host returns the address of the page as browsers write it, without the port that its scheme has anyhow.
func (s *Server) host() string {
	usual := uint16(443)
	if s.options.Unencrypted {
		usual = 80
	}
	if s.at.Port() == usual {
		return strings.TrimSuffix(s.at.String(), fmt.Sprintf(":%d", usual))
	}
	return s.at.String()
}

// origin returns the scheme and the address of the page.
func (s *Server) origin() string {
	if s.options.Unencrypted {
		return "http://" + s.host()
	}
	return "https://" + s.host()
}

// Link returns the URL that shows the page, with its secret.
func (s *Server) Link() string { return s.origin() + api.PagePath(s.key) + "#" + s.key }

// Fingerprint returns the SHA-256 hash of the certificate as browsers write it; empty without TLS.
func (s *Server) Fingerprint() string { return s.fingerprint }

// Run answers requests until ctx is done, and then ends streams and waits for requests in flight, for 5 s at most.
func (s *Server) Run(ctx context.Context) error {
	g, serving := errgroup.WithContext(ctx)
	s.running = serving
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      3 * requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return serving },
		TLSConfig:         s.tls,
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1 alone: a connection is a request at a time
	}
	g.Go(func() error {
		serve := server.Serve
		if s.tls != nil {
			serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
		if err := serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("share: serve %s: %w", s.at, err)
		}
		return nil
	})
	g.Go(func() error {
		<-serving.Done()
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if server.Shutdown(patience) != nil {
			return server.Close()
		}
		return nil
	})
	return g.Wait()
}
