package local

import (
	"context"
	"time"

	"pnode/node/api"
)

// askTimeout bounds asking one node why it waits.
const askTimeout = 5 * time.Second

// watch tells why when no step has come for a while, until over is closed. What a node
// says is shown once, and again only when it changes.
func (s *Supervisor) watch(over <-chan struct{}) {
	tick := time.NewTicker(s.patience / 4)
	defer tick.Stop()
	shown, next := "", time.Now().Add(s.patience)
	for {
		select {
		case <-over:
			return
		case now := <-tick.C:
			if newest := s.merge.lastStep().Add(s.patience); newest.After(next) {
				shown, next = "", newest
			}
			if now.Before(next) {
				continue
			}
			next = now.Add(s.patience)
			s.fates.tell(s.options.Output)
			if why := s.waiting(); why != "" && why != shown {
				shown = why
				s.options.Output.Notice("waiting: " + why)
			}
		}
	}
}

// waiting is why nothing moves, from the first node that knows.
func (s *Supervisor) waiting() string {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	for _, c := range s.started() {
		client, err := api.Dial(ctx, c.dir)
		if err != nil {
			continue
		}
		st, err := client.Status(ctx)
		client.Close()
		if err == nil && st.Waiting != "" {
			return st.Waiting
		}
	}
	return ""
}
