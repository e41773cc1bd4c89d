package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// mostListed bounds the stages, devices, links and replicas that are exported.
	mostListed = 64
	// maxLabel bounds a label's value, which may be another member's word.
	maxLabel = 64
)

// series hands the values of one scrape to Prometheus' client.
type series struct {
	to   chan<- prometheus.Metric
	seen map[string]bool // family and labels: two of the same would spoil the scrape
}

// add emits a value of a family, with its labels in the family's order.
func (s *series) add(family string, value float64, labels ...string) {
	values := make([]string, len(labels))
	for i, l := range labels {
		values[i] = label(l)
	}
	key := family + "\x00" + strings.Join(values, "\x00")
	if s.seen[key] {
		return
	}
	s.seen[key] = true
	e := exported[family]
	m, err := prometheus.NewConstMetric(e.desc, e.kind, value, values...)
	if err != nil {
		m = prometheus.NewInvalidMetric(e.desc, err)
	}
	s.to <- m
}

// known emits a value where there is one.
func (s *series) known(family string, value *float64, labels ...string) {
	if value != nil {
		s.add(family, *value, labels...)
	}
}

// measured emits a value that is 0 where it is not known, and then leaves it out.
func (s *series) measured(family string, value float64, labels ...string) {
	if value != 0 {
		s.add(family, value, labels...)
	}
}

// flag emits 1 or 0.
func (s *series) flag(family string, is bool, labels ...string) {
	value := 0.0
	if is {
		value = 1
	}
	s.add(family, value, labels...)
}

// label returns a text as a label's value, which Prometheus wants in UTF-8.
func label(text string) string {
	if len(text) > maxLabel {
		text = text[:maxLabel]
	}
	return strings.ToValidUTF8(text, "")
}

// listed returns at most mostListed elements, those of this node first.
func listed[T any](all []T, own func(T) bool) []T {
	if len(all) <= mostListed {
		return all
	}
	var first, then []T
	for _, x := range all {
		if own(x) {
			first = append(first, x)
		} else {
			then = append(then, x)
		}
	}
	return append(first, then...)[:mostListed]
}
