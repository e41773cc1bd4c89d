package plan

import (
	"math"
	"testing"
	"time"

	"pnode/pipeline/schedule"
)

func TestDurationsForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", -time.Second: "0 s", 250 * time.Millisecond: "250 ms", 999600 * time.Microsecond: "1 s", time.Second: "1 s",
		3250 * time.Millisecond: "3.3 s", 9990 * time.Millisecond: "10 s", 45 * time.Second: "45 s", 59900 * time.Millisecond: "1 min",
		time.Minute: "1 min", 75 * time.Second: "1 min 15 s", 10 * time.Minute: "10 min", 11*time.Minute + 20*time.Second: "11 min",
		59*time.Minute + 45*time.Second: "1 h", time.Hour: "1 h", 2*time.Hour + 10*time.Minute: "2 h 10 min", 24 * time.Hour: "24 h",
		48 * time.Hour: "2 days", 76 * time.Hour: "3 days 4 h", 720 * time.Hour: "30 days", math.MaxInt64: "106,751 days 23 h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v is printed as %q, want %q", d, got, want)
		}
	}
}

func TestFiguresOfSteps(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1500: "1.50 us", 29500 * time.Microsecond: "29.50 ms", 29 * time.Second: "29.00 s", 100 * time.Second: "1 min 40 s", 48 * time.Hour: "2 days",
	} {
		if got := Time(schedule.Nanos(d)); got != want {
			t.Errorf("%v is printed as %q, want %q", d, got, want)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 262144: "262,144", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := Number(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for text, n := range map[string]int{"1 step": 1, "0 steps": 0, "4,000 steps": 4000} {
		if got := Count(n, "step"); got != text {
			t.Errorf("%d: %s, want %s", n, got, text)
		}
	}
	if got := (LayerRanges{{0, 2}, {5, 6}}).String(); got != "0-1 and 5" {
		t.Errorf("layers %s, want 0-1 and 5", got)
	}
}
