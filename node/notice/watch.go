package notice

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

// metadata is the address of the metadata services of all three clouds.
const metadata = "http://169.254.169.254"

const (
	// absentEvery is the time between questions for a key that the service does not have.
	absentEvery = time.Minute
	// slowest bounds the time between questions that fail.
	slowest = time.Minute
)

// errAbsent is the answer of a service that does not have the key.
var errAbsent = errors.New("the service does not have this key")

// source asks a metadata service for one kind of notice, again and again.
type source struct {
	name  string
	every time.Duration
	// ask returns nil while there is no notice.
	ask func(context.Context) (*Notice, error)
}

// Watch calls tell with every notice until ctx ends, or no cloud is to be asked. It calls tell from several goroutines.
func Watch(ctx context.Context, s Setting, log *slog.Logger, tell func(Notice)) {
	watch(ctx, s, firmware, nil, log, tell)
}

// watch is Watch on a machine with a firmware and a network of tests.
func watch(ctx context.Context, s Setting, root string, dial func(context.Context, string, string) (net.Conn, error), log *slog.Logger, tell func(Notice)) {
	cloud, base := s.cloud, s.endpoint
	if cloud == "" {
		cloud = detect(root)
	}
	if base == "" {
		base = metadata
	}
	c := newClient(base, dial)
	defer c.http.CloseIdleConnections()
	var sources []source
	switch cloud {
	case aws:
		sources = (&ec2{client: c}).sources()
	case gcp:
		sources = compute{c}.sources()
	case azure:
		sources = (&scheduled{client: c}).sources()
	}
	var asking sync.WaitGroup
	for _, s := range sources {
		asking.Go(func() { s.watch(ctx, log, tell) })
	}
	asking.Wait()
}

// watch asks until ctx ends, or there is a notice that is no hint. The log has the first of several failures.
func (s source) watch(ctx context.Context, log *slog.Logger, tell func(Notice)) {
	failed := 0
	for ctx.Err() == nil {
		wait := s.every
		switch n, err := s.ask(ctx); {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errAbsent):
			wait, failed = absentEvery, 0
		case err != nil:
			if failed++; failed == 1 {
				log.Warn("no answer about notices of preemption; asking again, --notices off ends that", "source", s.name, "cause", err)
			}
			wait = min(s.every<<min(failed, 10), slowest)
		default:
			failed = 0
			if n != nil {
				tell(*n)
				if !n.Hint {
					return
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}
