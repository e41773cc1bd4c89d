package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/plain"
)

// doorbell asks whoever is at a terminal whether machines of the local network may join. One question is open at a time.
type doorbell struct {
	tell  func(string)
	lines <-chan string // that people enter; closed when nobody reads along
	rings chan ring
}

// ring is one newcomer at the door.
type ring struct {
	api.Newcomer
	answer api.Decision
}

const (
	// mostRings bounds those who wait for their question.
	mostRings = 8
	// questionTime is how long a question is open: as long as the newcomer waits.
	questionTime = 5 * time.Minute
	// readTime is the least time in which people have read a question: an answer before it is to the one before.
	readTime = time.Second
)

// doorbell returns what asks people about newcomers, until ctx ends; nil where nobody is at a terminal. tell prints lines.
func (e environment) doorbell(ctx context.Context, cfg config.Config, tell func(string)) func(api.Newcomer, api.Decision) {
	if !cfg.LAN || cfg.JSON || !isTerminal(e.stdin) || !isTerminal(e.stdout) || !isTerminal(e.stderr) {
		return nil
	}
	ignoreBackgroundReads()
	lines := make(chan string)
	go func() { // reads as long as the process lives: what is typed before a question is no answer to it
		defer close(lines)
		for in := bufio.NewScanner(e.stdin); in.Scan(); {
			lines <- in.Text()
		}
	}()
	d := newDoorbell(lines, tell)
	go d.run(ctx)
	return d.ring
}

func newDoorbell(lines <-chan string, tell func(string)) *doorbell {
	return &doorbell{tell: tell, lines: lines, rings: make(chan ring, mostRings)}
}

// ring has people asked about a newcomer. It does not block.
func (d *doorbell) ring(n api.Newcomer, answer api.Decision) {
	select {
	case d.rings <- ring{n, answer}:
	default:
		d.tell(n.Text())
	}
}

// run asks one question after the other until ctx ends. Lines that answer none are dropped.
func (d *doorbell) run(ctx context.Context) {
	for {
		select {
		case r := <-d.rings:
			d.ask(ctx, r)
		case _, reads := <-d.lines:
			if !reads {
				d.lines = nil // rings are told from now on
			}
		case <-ctx.Done():
			return
		}
	}
}

// ask asks about one newcomer, and lets it in where the answer is yes. Where nobody reads along it is told as elsewhere.
func (d *doorbell) ask(ctx context.Context, r ring) {
	if d.lines == nil {
		d.tell(r.Text())
		return
	}
	d.tell(r.Question() + " let it in? [y/N]")
	asked, late := time.Now(), time.NewTimer(questionTime)
	defer late.Stop()
	for {
		select {
		case line, reads := <-d.lines:
			switch {
			case !reads:
				d.lines = nil
				d.tell(r.Text())
			case time.Since(asked) < readTime:
				continue
			case isYes(line):
				d.tell(r.let(ctx))
			default:
				d.tell(r.refuse(ctx))
			}
		case <-late.C:
			d.tell(fmt.Sprintf("%s was not let in: nobody has answered within %d minutes", r.Name, int(questionTime/time.Minute)))
		case <-ctx.Done():
		}
		return
	}
}

func isYes(line string) bool {
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

// let lets the newcomer in, and says so, or why not.
func (r ring) let(ctx context.Context) string {
	done, err := r.answer(ctx, true)
	if err != nil {
		return fmt.Sprintf("%s is not let in: %s. To try again: pnode admit %s", r.Name, plain.Text(err), r.Code)
	}
	return done
}

// refuse has the newcomer told that it is not let in, and says so, or why it goes on waiting.
func (r ring) refuse(ctx context.Context) string {
	if _, err := r.answer(ctx, false); err != nil {
		return fmt.Sprintf("%s is not let in, and could not be told: %s", r.Name, plain.Text(err))
	}
	return r.Refused()
}
