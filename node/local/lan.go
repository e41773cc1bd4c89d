package local

import (
	"context"
	"time"

	"pnode/node/api"
)

// askEvery is the time between two questions who of the local network asks to join.
const askEvery = time.Second

// watchLAN has people told of what node 0 tells of the local network, as a node tells it that runs alone, until the process is gone.
func (s *Supervisor) watchLAN(first *child) {
	ctx := context.Background() // the process's end ends it
	client, err := first.dial(ctx)
	if err != nil {
		return
	}
	defer client.Close()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	announced, known := false, map[string]time.Time{}
	for {
		waiting, err := client.Newcomers(ctx)
		if !announced && err == nil {
			announced = true
			s.options.Output.Notice(api.Announced)
		}
		for _, n := range waiting {
			if !known[n.Code].Equal(n.Since) {
				known[n.Code] = n.Since
				s.newcomer(n, client)
			}
		}
		select {
		case <-tick.C:
		case <-first.ended:
			return
		}
	}
}

// newcomer has people asked, or told.
func (s *Supervisor) newcomer(n api.Newcomer, client *api.Client) {
	if s.options.Newcomer == nil {
		s.options.Output.Notice(n.Text())
		return
	}
	s.options.Newcomer(n, func(ctx context.Context, in bool) (string, error) {
		if in {
			return client.Admit(ctx, n.Code)
		}
		return "", client.Refuse(ctx, n.Code)
	})
}
