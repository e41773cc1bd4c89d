package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/progress"
	"pnode/node/screen"
)

const (
	statusKeys = "q leaves this view; the run goes on   i: invite a machine"
	nodeKeys   = "q: back to plain lines   i: invite a machine   Ctrl-C: stop this node with a checkpoint"
)

// addScreen adds --screen to a command that runs a node.
func addScreen(c *cobra.Command) *bool {
	return c.Flags().Bool("screen", false, "show the run on the whole terminal: machines, loss, speed, what it waits for; q goes back to plain lines")
}

// hasScreen reports whether a view can be drawn, and keys be read.
func (e environment) hasScreen() bool {
	return isTerminal(e.stdin) && isTerminal(e.stdout) && os.Getenv("TERM") != "dumb"
}

// columns returns how many characters a line of standard output has, 0 where it is no terminal.
func (e environment) columns() int {
	out := e.stdout
	if o, ok := out.(*output); ok {
		out = o.Writer
	}
	return screen.Columns(out)
}

// view shows a node on the whole terminal.
func (e environment) view(ctx context.Context, client *api.Client, keys string) (screen.Key, error) {
	out := e.stdout
	if o, ok := out.(*output); ok {
		out = o.Writer // the terminal itself, which has a size
	}
	ctx, over := e.interrupts.viewing(ctx)
	defer over()
	return screen.Run(ctx, screen.Options{Source: client, Dir: config.Absolute(client.Dir()), In: e.stdin, Out: out, Colour: os.Getenv("NO_COLOR") == "", Keys: keys})
}

// show returns the writer of a node's events, and a function to call when the node has ended. With --screen the run is on the whole
// terminal meanwhile; the lines that were written come when that has ended.
func (e environment) show(ctx context.Context, cfg config.Config, steps int) (w *progress.Writer, ended func()) {
	if e.screen == nil || !*e.screen || cfg.JSON || !e.hasScreen() || !isTerminal(e.stderr) {
		return e.progress(cfg, steps), func() {}
	}
	terminal, lines := e, &curtain{to: e.stderr}
	ctx, cancel := context.WithCancel(ctx)
	var viewing sync.WaitGroup
	viewing.Go(func() {
		client := awaitNode(ctx, cfg.Dir)
		if client == nil {
			return
		}
		defer client.Close()
		lines.lower()
		key, err := terminal.view(ctx, client, nodeKeys)
		lines.raise()
		if err != nil && ctx.Err() == nil && !errors.Is(err, api.ErrNoNode) { // the node says itself how it ends
			_, _ = io.WriteString(lines, "the view has ended: "+sentence(err)+"\n")
		}
		if key == screen.KeyInterrupt {
			terminal.interrupts.press()
		}
	})
	e.stdout, e.stderr = lines, lines
	return e.progress(cfg, steps), func() {
		cancel()
		viewing.Wait()
	}
}

// dialEvery is the time between two looks for a node that starts.
const dialEvery = 200 * time.Millisecond

// awaitNode returns a client of the node that starts in a folder; nil when ctx ends before.
func awaitNode(ctx context.Context, dir string) *api.Client {
	tick := time.NewTicker(dialEvery)
	defer tick.Stop()
	for {
		if client, err := api.Dial(ctx, dir); err == nil {
			return client
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// mostKept bounds the text that a curtain keeps: the newest.
const mostKept = 64 << 10

// curtain passes text on while it is up, as it is at first. While it is down it keeps what comes, and passes that on when it is raised.
type curtain struct {
	to io.Writer

	mu   sync.Mutex // guards what follows
	down bool
	kept []byte
}

func (c *curtain) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.down {
		return c.to.Write(p)
	}
	c.kept = append(c.kept, p...)
	if over := len(c.kept) - mostKept; over > 0 { // up to a line's end
		if end := bytes.IndexByte(c.kept[over:], '\n'); end >= 0 {
			over += end + 1
		}
		c.kept = append([]byte(nil), c.kept[over:]...)
	}
	return len(p), nil
}

func (c *curtain) lower() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = true
}

func (c *curtain) raise() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = false
	_, _ = c.to.Write(c.kept) // the next write fails, too
	c.kept = nil
}
