package feed

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"pnode/planner/plan"
)

// quiet is a voter's log in which nothing has happened.
type quiet struct{ Source }

func (quiet) View() View               { return View{Leader: "leader", Term: 1, Votes: true, Members: 3} }
func (quiet) Changed() <-chan struct{} { return nil }

// TestAnswersAreBounded: a follower that answers without an end is given up before that is in memory.
func TestAnswersAreBounded(t *testing.T) {
	here, there := net.Pipe()
	sent := make(chan int64)
	go func() {
		text := append([]byte{0xdb, 0x7f, 0xff, 0xff, 0xff}, bytes.Repeat([]byte("x"), 1<<20)...) // msgpack: a text of 2 GiB
		go io.Copy(io.Discard, there)
		n, _ := io.Copy(there, bytes.NewReader(text))
		there.Close()
		sent <- n
	}()
	err := NewGiver(quiet{}, hclog.NewNullLogger()).Feed(context.Background(), here, plan.PeerID("f"), Opening{})
	if n := <-sent; err == nil || !strings.Contains(err.Error(), errLong.Error()) || n > maxAnswerBytes {
		t.Errorf("%d bytes were read: %v", n, err)
	}
}
