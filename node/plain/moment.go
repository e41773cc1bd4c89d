package plain

import "time"

// Moment prints a time of day in a layout, and as a date with hours and minutes where it is half a day or more from another time.
func Moment(at, near time.Time, layout string) string {
	if at.Sub(near).Abs() < 12*time.Hour {
		return at.Format(layout)
	}
	return at.Format("Jan 2 15:04")
}
