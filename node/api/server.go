package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/planner/plan"
)

// Node answers the requests that the server gets. Its methods are called concurrently.
type Node interface {
	// Status is a snapshot; it must not block on the network.
	Status() Status
	// Events and History are the methods of the node's Hub.
	Events(ctx context.Context) <-chan Event
	History() History
	// Schedule draws a step of the plan that runs as SVG; the error wraps ErrNotReady while
	// there is none.
	Schedule(w io.Writer) error
	// Invite makes an invite; the error wraps ErrNotReady while the node cannot make one yet.
	Invite(ctx context.Context, r InviteRequest) (string, error)
	// MayInvite returns why this node cannot make invites, nil where it can.
	MayInvite() error
	// Invites lists the invites of the run.
	Invites() ([]Invite, error)
	// Revoke removes a node from the run, or ends an invite, and says what was done.
	Revoke(ctx context.Context, r RevokeRequest) (string, error)
	// Newcomers lists the machines of the local network that ask to be let in.
	Newcomers() ([]Newcomer, error)
	// Admit gives an invite to the one that shows a code, and says to whom. Another code refuses all that ask.
	Admit(ctx context.Context, code string) (string, error)
	// Refuse tells some of them that they are not let in, and returns these.
	Refuse(r Refusal) ([]Newcomer, error)
	// Checkpoints lists what this node keeps.
	Checkpoints() (CheckpointList, error)
	// Profiles lists what plans know of the members' devices and lines.
	Profiles() (Profiles, error)
	// Model names the newest checkpoint, which stays for a while; the error wraps ErrNotReady before the first.
	Model() (Model, error)
	// Chunk returns a chunk of the run while the checkpoint of a step is read.
	Chunk(ctx context.Context, step plan.Step, h plan.Hash) ([]byte, error)
	// KeepWhole has the node keep the newest checkpoint whole from now on; the error wraps ErrNotReady before the first.
	KeepWhole() (Keeping, error)
	// Leave begins to drain this node and returns when that is under way.
	Leave(ctx context.Context) error
	// Recover goes on with the run without the majority of its voters, which is lost for good.
	Recover(ctx context.Context) (Recovery, error)
	// Stop asks all nodes of the run to checkpoint and stop and returns when they are
	// told.
	Stop(ctx context.Context) error
}

// Bounds on what one client can ask for or hold on to.
const (
	maxHeaderBytes = 16 << 10
	maxBodyBytes   = 4 << 10
	maxStreams     = 32
	readTimeout    = 10 * time.Second
	// requestTimeout bounds every request but the stream of events.
	requestTimeout = 2 * time.Minute
	// writeTimeout is how long a reader of events may leave a write unread.
	writeTimeout = 30 * time.Second
	// closeTimeout is how long requests in flight may take to end at shutdown.
	closeTimeout = 5 * time.Second
)

// Options say what to serve and where to leave the address.
type Options struct {
	// Dir is the node's folder; it must exist.
	Dir  string
	Node Node
	// Metrics answers GET /metrics, and /v1/metrics, behind the same checks as all else; nil is nobody.
	Metrics http.Handler
	// Log is where failures of the server itself go; nil is nowhere.
	Log *slog.Logger
}

// Server is a node's local API, listening already.
type Server struct {
	options  Options
	address  Address
	view     view
	listener net.Listener
	streams  chan struct{} // one token for each stream of events
	ending   chan struct{} // closed when Run shuts down
}

// Listen takes a loopback port, that of the node before in the folder if it can be had, and
// writes the address file. Requests are answered once Run runs.
func Listen(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l, page, err := listenAgain(o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{
		options: o, listener: l, view: page,
		address: Address{
			Addr: page.Addr, Token: newToken(), PID: os.Getpid(),
			Page:      "http://" + page.Addr + page.path() + "#" + page.Key, // a browser sends what follows the # nowhere
			Admission: newToken(),
		},
		streams: make(chan struct{}, maxStreams),
		ending:  make(chan struct{}),
	}
	if err := writeFile(o.Dir, AddressFile, s.address); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return s, nil
}

// Run answers requests until ctx is done, then removes the address file, lets streams
// write the events that are queued and waits for requests in flight, for 5 s at most.
func (s *Server) Run(ctx context.Context) error {
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug),
	}
	g, serving := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("api: serve %s: %w", s.address.Addr, err)
		}
		return nil
	})
	g.Go(func() error {
		<-serving.Done()
		err := removeAddress(s.options.Dir, s.address)
		close(s.ending)
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if server.Shutdown(patience) != nil {
			err = errors.Join(err, server.Close())
		}
		return err
	})
	return g.Wait()
}
