package local

import (
	"context"
	"maps"
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
	announced, known := false, asking{}
	for {
		waiting, err := client.Newcomers(ctx)
		if !announced && err == nil {
			announced = true
			s.options.Output.Notice(api.Announced)
		}
		if err == nil {
			for _, n := range known.look(waiting) {
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

// asking holds those who asked to join at the last look: since when, by the code that they show.
type asking map[string]time.Time

// look returns who has come since, and forgets who asks no more.
func (a asking) look(waiting []api.Newcomer) (came []api.Newcomer) {
	before := maps.Clone(a)
	clear(a)
	for _, n := range waiting {
		if !before[n.Code].Equal(n.Since) {
			came = append(came, n)
		}
		a[n.Code] = n.Since
	}
	return came
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
		return client.Refuse(ctx, n.Code)
	})
}
