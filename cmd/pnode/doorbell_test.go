package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/api"
)

// rung is a doorbell with what it has told, and whom people have let in.
type rung struct {
	*doorbell
	lines    chan string
	told     []string
	admitted []string
	refused  []string
}

func newRung(t *testing.T) *rung {
	d := &rung{lines: make(chan string)}
	d.doorbell = newDoorbell(d.lines, func(text string) { d.told = append(d.told, text) })
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go d.run(ctx)
	return d
}

// asks has a machine ask to join.
func (d *rung) asks(name, code string) api.Newcomer {
	n := api.Newcomer{Name: name, Address: "192.0.2.7", Code: code}
	d.ring(n, func(_ context.Context, in bool) (string, error) {
		if !in {
			d.refused = append(d.refused, name)
			return "", nil
		}
		d.admitted = append(d.admitted, name)
		if name == "gone" {
			return "", errors.New("gone has stopped asking meanwhile")
		}
		return name + " may join", nil
	})
	synctest.Wait()
	return n
}

// enters has people enter a line after a while.
func (d *rung) enters(line string, after time.Duration) {
	time.Sleep(after)
	d.lines <- line
	synctest.Wait()
}

// last returns the newest line that was told.
func (d *rung) last() string { return d.told[len(d.told)-1] }

// TestOnlyAYesLetsIn: of people who have had the time to read the question; what they typed before is no answer.
func TestOnlyAYesLetsIn(t *testing.T) {
	for line, in := range map[string]bool{"y": true, " Yes ": true, "": false, "n": false, "yy": false, "482913": false} {
		synctest.Test(t, func(t *testing.T) {
			d := newRung(t)
			d.enters("y", time.Second)
			d.asks("laptop", "482913")
			if !strings.HasSuffix(d.last(), "its screen shows 482 913: let it in? [y/N]") {
				t.Errorf("%q", d.told)
			}
			d.enters("y", readTime/2)
			if len(d.admitted) > 0 || len(d.told) > 1 {
				t.Errorf("an answer before the question was read counts: %q", d.told)
			}
			d.enters(line, readTime)
			if want := map[bool]string{true: "laptop may join", false: "laptop is not let in, and was told so; it may ask again"}[in]; (len(d.admitted) == 1) != in || (len(d.refused) == 1) == in || d.last() != want {
				t.Errorf("%q: %v let in, %q", line, d.admitted, d.last())
			}
		})
	}
}

// TestOneQuestionAfterTheOther: who rings meanwhile waits, and a question that nobody answers ends.
func TestOneQuestionAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRung(t)
		d.asks("gone", "111222")
		d.asks("laptop", "482913")
		if len(d.told) != 1 {
			t.Fatalf("two questions are open: %q", d.told)
		}
		d.enters("y", readTime)
		if !slices.Contains(d.told, "gone is not let in: gone has stopped asking meanwhile. To try again: pnode admit 111222") || !strings.HasPrefix(d.last(), "laptop (") {
			t.Errorf("%q", d.told)
		}
		time.Sleep(questionTime)
		synctest.Wait()
		if d.last() != "laptop was not let in: nobody has answered within 5 minutes" {
			t.Errorf("%q", d.told)
		}
		d.asks("attic", "333444")
		for i := range mostRings + 1 { // behind that question
			d.asks(fmt.Sprint("more", i), "555666")
		}
		if got := d.last(); !strings.HasPrefix(got, fmt.Sprint("more", mostRings, " (")) || !strings.HasSuffix(got, ": pnode admit 555666; if not: pnode admit --refuse 555666") {
			t.Errorf("one too many is told %q", got)
		}
	})
}

// TestWhereNobodyReadsNewcomersAreTold: as without a terminal, from the end of standard input on.
func TestWhereNobodyReadsNewcomersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newRung(t)
		n := d.asks("laptop", "482913")
		close(d.lines)
		synctest.Wait()
		if d.last() != n.Text() {
			t.Errorf("%q", d.told)
		}
		if n = d.asks("attic", "333444"); d.last() != n.Text() || len(d.admitted) > 0 {
			t.Errorf("%q", d.told)
		}
	})
}
