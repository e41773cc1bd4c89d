package local

import "time"

// watch shows why no step has come for a while, until over is closed. What a node says is shown once, and again only
// when it changes.
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
			s.merge.flush()
			s.fates.tell(s.options.Output)
			if why := s.merge.waits(); why != "" && why != shown {
				shown = why
				s.options.Output.Notice("waiting: " + why)
			}
		}
	}
}
