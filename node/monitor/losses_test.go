package monitor

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/api"
)

// TestLossesThatCannotBeKeptAreToldOnceAndTriedAgain: a folder that is not there stands for a full disk.
func TestLossesThatCannotBeKeptAreToldOnceAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		m := &Monitor{Config: Config{Dir: filepath.Join(t.TempDir(), "later"), Log: slog.New(slog.NewTextHandler(&said, nil))}}
		m.Publish(api.Event{Kind: api.KindStep, Generation: 1, Step: 1, Loss: 5})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			m.KeepLosses(ctx)
		}()
		time.Sleep(3*keepLossesEvery + time.Second)
		if err := os.Mkdir(m.Dir, 0o700); err != nil { // and there is no newer step
			t.Error(err)
		}
		time.Sleep(keepLossesEvery)
		if _, err := os.Stat(filepath.Join(m.Dir, LossesFile)); err != nil {
			t.Error(err)
		}
		stop()
		<-ended
		if told := strings.Count(said.String(), "training goes on"); told != 1 {
			t.Errorf("told %d times:\n%s", told, said.String())
		}
	})
}
