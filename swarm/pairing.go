package swarm

import (
	"context"
	"errors"
	"io"

	"pnode/swarm/admission"
	"pnode/swarm/host"
	"pnode/swarm/pairing"
)

// ErrLoopback says that a node listens on this machine alone, so that nobody in the local network reaches it.
var ErrLoopback = errors.New("swarm: this node listens on this machine alone")

// Pair answers newcomers in the local network from now on, and announces this node there until Close of the result. Of cfg Host, Tasks, Log, Run
// and Local are filled in.
func (s *Swarm) Pair(cfg pairing.Config) (*pairing.Service, io.Closer, error) {
	if !s.reachable {
		return nil, nil, ErrLoopback
	}
	cfg.Host, cfg.Tasks, cfg.Log, cfg.Run, cfg.Local = s.host, s.tasks, s.cfg.Logger, s.cfg.Run, pairing.Local
	service := pairing.Serve(cfg)
	announced, err := pairing.Announce(s.host)
	return service, announced, err
}

// LocalRuns are the runs that nodes offer in the local network, by their own word, until Close.
type LocalRuns struct {
	Runs []pairing.Run
	host *host.Host
	end  func() error
}

// SearchLocal looks for runs in the local network, for 4 s at most, as a node that is nobody's and announces nothing.
func SearchLocal(ctx context.Context) (_ *LocalRuns, err error) {
	id, err := admission.NewIdentity()
	if err != nil {
		return nil, err
	}
	l := &LocalRuns{}
	if l.host, l.end, err = claimHost(Config{Identity: id, Listen: []string{"127.0.0.1:0"}}); err != nil {
		return nil, err
	}
	if l.Runs, err = pairing.Search(ctx, l.host, pairing.Local); err != nil {
		return nil, errors.Join(err, l.end())
	}
	return l, nil
}

// Ask is [pairing.Ask]: it asks for an invite to a run, and blocks until people have decided.
func (l *LocalRuns) Ask(ctx context.Context, run pairing.Run, name string, show func(code string)) (invite string, err error) {
	return pairing.Ask(ctx, l.host, run, name, show)
}

// Close ends the search and what it asks.
func (l *LocalRuns) Close() error { return l.end() }
