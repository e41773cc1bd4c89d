package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// unit is a suffix of a number and what it multiplies the number by.
type unit struct {
	suffix string
	factor float64
}

// amount reads a number with one of the units, in either case; the first suffix that fits
// counts, so that longer ones come first.
func amount(text string, units []unit) (float64, bool) {
	for _, u := range units {
		number, ok := cutSuffixFold(text, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if v *= u.factor; err != nil || !(v >= 0 && v < math.MaxInt64) {
			return 0, false
		}
		return v, true
	}
	return 0, false
}

// inUnit formats a number in the largest unit of which it is at least one.
func inUnit(v float64, units []unit) string {
	for _, u := range units {
		if v >= u.factor {
			return strconv.FormatFloat(v/u.factor, 'g', -1, 64) + u.suffix
		}
	}
	last := units[len(units)-1]
	return strconv.FormatFloat(v/last.factor, 'g', -1, 64) + last.suffix
}

// Speed is in floating-point operations a second.
type Speed int64

var speedUnits = []unit{{"PFLOP/s", 1e15}, {"TFLOP/s", 1e12}, {"GFLOP/s", 1e9}, {"MFLOP/s", 1e6}}

// Set reads a speed such as 8.1TFLOP/s.
func (s *Speed) Set(text string) error {
	v, ok := amount(text, speedUnits)
	if !ok || v < 1 {
		return fmt.Errorf("%q: want a speed such as 150GFLOP/s or 8.1TFLOP/s", text)
	}
	*s = Speed(v)
	return nil
}

// String returns the text that Set reads.
func (s Speed) String() string { return inUnit(float64(s), speedUnits) }

// Rate is in bytes a second; 0 is without limit.
type Rate int64

var (
	bitUnits  = []unit{{"Gbit/s", 1e9 / 8}, {"Mbit/s", 1e6 / 8}, {"kbit/s", 1e3 / 8}}
	byteUnits = []unit{{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"KB/s", 1e3}}
)

// Set reads a rate such as 100Mbit/s or 320GB/s.
func (r *Rate) Set(text string) error {
	v, ok := amount(text, bitUnits)
	if !ok {
		v, ok = amount(text, byteUnits)
	}
	if !ok || v < 1 {
		return fmt.Errorf("%q: want a rate such as 100Mbit/s or 320GB/s", text)
	}
	*r = Rate(v)
	return nil
}

// String returns the text that Set reads.
func (r Rate) String() string { return inUnit(float64(r), bitUnits) }

// RelayRate bounds how fast a node relays for others, in bytes a second. Below 0 it relays nothing; 0, which is written "",
// leaves what the node had before, or usualRelay.
type RelayRate int64

// Slower relays are of no use; faster ones are none.
const (
	leastRelay           = 1e6 / 8
	mostRelay            = 100e9 / 8
	relayOff   RelayRate = -1
	usualRelay           = 100e6 / 8
)

// BytesPerS returns the rate, 0 for none at all.
func (r RelayRate) BytesPerS() int64 {
	if r == 0 {
		return usualRelay
	}
	return max(int64(r), 0)
}

// Set reads off, a rate such as 100Mbit/s, or "".
func (r *RelayRate) Set(text string) error {
	switch text {
	case off:
		*r = relayOff
		return nil
	case "":
		*r = 0
		return nil
	}
	var rate Rate
	if err := rate.Set(text); err != nil || rate < leastRelay || rate > mostRelay {
		return fmt.Errorf("%q: want off, or a rate from 1Mbit/s to 100Gbit/s such as 20Mbit/s", text)
	}
	*r = RelayRate(rate)
	return nil
}

// String returns the text that Set reads.
func (r RelayRate) String() string {
	switch {
	case r < 0:
		return off
	case r == 0:
		return ""
	}
	return Rate(r).String()
}

// Type names the values for a flag's help.
func (*RelayRate) Type() string { return "RATE|off" }

// Span is a time within an emulated link. Longer ones than maxSpan end connections.
type Span time.Duration

// Moment is a time since a start. No run is watched for longer than maxMoment.
type Moment time.Duration

const (
	maxSpan   = 10 * time.Second
	maxMoment = 7 * 24 * time.Hour
)

// Set reads a time such as 40ms.
func (s *Span) Set(text string) error { return setTime((*time.Duration)(s), text, maxSpan, "40ms") }

// Set reads a time such as 90s.
func (m *Moment) Set(text string) error {
	return setTime((*time.Duration)(m), text, maxMoment, "90s")
}

func setTime(to *time.Duration, text string, most time.Duration, example string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > most {
		return fmt.Errorf("%q: want a time from 0s to %s, such as %s", text, typed(most), example)
	}
	*to = d
	return nil
}

// typed returns a time as people type it: "10m" and not "10m0s".
func typed(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = strings.TrimSuffix(text, zero[1:])
		}
	}
	return text
}

// String returns the text that Set reads.
func (s Span) String() string { return typed(time.Duration(s)) }

// String returns the text that Set reads.
func (m Moment) String() string { return typed(time.Duration(m)) }

// Type names the values for a flag's help.
func (*Moment) Type() string { return "TIME" }

// Grace is how long a process has from SIGTERM on. Less than leastGrace is too short to do anything.
type Grace time.Duration

const (
	usualGrace = 30 * time.Second // as Kubernetes and most spot instances give
	leastGrace = time.Second
	mostGrace  = 24 * time.Hour
)

// Set reads a time such as 30s.
func (g *Grace) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < leastGrace || d > mostGrace {
		return fmt.Errorf("%q: want a time from %s to %s, such as 30s", text, typed(leastGrace), typed(mostGrace))
	}
	*g = Grace(d)
	return nil
}

// String returns the text that Set reads.
func (g Grace) String() string { return typed(time.Duration(g)) }

// Type names the values for a flag's help.
func (*Grace) Type() string { return "TIME" }

// Share is in millionths.
type Share int

// Set reads a share such as 0.5%.
func (s *Share) Set(text string) error {
	v, ok := amount(text, []unit{{"%", 1e4}})
	if !ok || v > 1e6 {
		return fmt.Errorf("%q: want a share from 0%% to 100%%, such as 0.5%%", text)
	}
	*s = Share(math.Round(v))
	return nil
}

// String returns the text that Set reads.
func (s Share) String() string { return strconv.FormatFloat(float64(s)/1e4, 'g', -1, 64) + "%" }
