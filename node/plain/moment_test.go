package plain

import (
	"testing"
	"time"
)

func TestMomentsForPeople(t *testing.T) {
	now := time.Date(2026, 7, 1, 1, 2, 3, 0, time.UTC)
	for want, at := range map[string]time.Time{
		"01:02:03": now, "23:59:00": now.Add(-time.Hour - 3*time.Minute - 3*time.Second), "Jun 30 13:02": now.Add(-12 * time.Hour), "Jul 2 01:02": now.Add(24 * time.Hour),
	} {
		if got := Moment(at, now, time.TimeOnly); got != want {
			t.Errorf("%v is printed as %q, want %q", at, got, want)
		}
	}
}
