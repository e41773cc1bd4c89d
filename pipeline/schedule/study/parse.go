package study

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"pnode/pipeline/schedule"
)

// Nanos is a time in nanoseconds.
type Nanos = schedule.Nanos

// ErrBadRequest is wrapped by every error about what was asked for.
var ErrBadRequest = errors.New("bad request")

func bad(field, value, want string) error {
	return fmt.Errorf("%w: %s is %q: want %s", ErrBadRequest, field, value, want)
}

// Words are a request's times and links as a person writes them.
type Words struct{ Forward, Backward, Weight, Recompute, Update, Links, Jitter []string }

// Read takes times and links from their words.
func (r *Request) Read(w Words) error {
	var jitter []Nanos
	for _, t := range []struct {
		field string
		words []string
		to    *[]Nanos
	}{
		{"--forward", w.Forward, &r.Forward},
		{"--backward", w.Backward, &r.Backward},
		{"--weight", w.Weight, &r.Weight},
		{"--recompute", w.Recompute, &r.Recompute},
		{"--update", w.Update, &r.Update},
		{"--jitter", w.Jitter, &jitter},
	} {
		var err error
		if *t.to, err = Times(t.field, t.words); err != nil {
			return err
		}
	}
	for _, mean := range jitter {
		r.Jitter.Mean = mean
	}
	var err error
	r.Links, err = Hops("--link", w.Links)
	return err
}

// Times reads a list of times such as `1`, `0.5` (milliseconds) or `250us`.
func Times(field string, words []string) ([]Nanos, error) {
	var all []Nanos
	for _, word := range words {
		t, ok := parseTime(word)
		if !ok {
			return nil, bad(field, word, "a number of milliseconds such as 1.5, or a time such as 250us or 2s, up to an hour")
		}
		all = append(all, t)
	}
	return all, nil
}

func parseTime(word string) (Nanos, bool) {
	word = strings.TrimSpace(word)
	if _, err := strconv.ParseFloat(word, 64); err == nil {
		word += "ms"
	}
	d, err := time.ParseDuration(word)
	return Nanos(d), err == nil && d >= 0 && d <= time.Hour
}

// Hops reads a list of links such as `2:4`: how long a message occupies the link, and the
// latency that follows. `2` alone has no latency.
func Hops(field string, words []string) ([]schedule.Hop, error) {
	var all []schedule.Hop
	for _, word := range words {
		transfer, latency, has := strings.Cut(word, ":")
		if !has {
			latency = "0"
		}
		s, okS := parseTime(transfer)
		l, okL := parseTime(latency)
		if !okS || !okL {
			return nil, bad(field, word, "TRANSFER:LATENCY in milliseconds or with units, such as 2:4 or 500us:40ms")
		}
		all = append(all, schedule.Hop{Transfer: s, Latency: l})
	}
	return all, nil
}

// each returns one value to everyone, or as many values as there are; none is zero.
func each[T any](field string, values []T, n int, what string) ([]T, error) {
	switch len(values) {
	case n:
		return values, nil
	case 0:
		return make([]T, n), nil
	case 1:
		all := make([]T, n)
		for i := range all {
			all[i] = values[0]
		}
		return all, nil
	}
	return nil, fmt.Errorf("%w: %s has %d values: want one, or %d, one for each %s", ErrBadRequest, field, len(values), n, what)
}
