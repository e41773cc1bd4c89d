package notice

import (
	"context"
	"time"

	"pnode/planner/plan"
)

// Notice says that this node is to leave its run. As the cause of a context it ends what the context is for.
type Notice struct {
	// Why says in a few words who wants it and what happens, such as "SIGTERM" or "AWS terminates this instance".
	Why string
	// At is when the machine, or the process, goes; zero where nobody says.
	At time.Time
	// Hint marks what may happen: nothing is to be done yet.
	Hint bool
	// Ready tells the platform that it may begin, where it waits for that; nil where it does not.
	Ready func(context.Context) error
}

// Error returns why. Only a pointer is an error: causes are compared, which functions cannot be.
func (n *Notice) Error() string { return n.Why }

// Sooner returns the notice with the earlier time of two that came one after the other.
func (n Notice) Sooner(next Notice) Notice {
	switch {
	case n.Why == "" || n.At.IsZero() && !next.At.IsZero():
		if next.Ready == nil {
			next.Ready = n.Ready
		}
		return next
	case !next.At.IsZero() && next.At.Before(n.At):
		n.At = next.At
	}
	if n.Ready == nil {
		n.Ready = next.Ready
	}
	return n
}

// Within returns a notice of something that ends this process so long after now; 0 is not known.
func Within(why string, grace time.Duration, now time.Time) Notice {
	n := Notice{Why: why}
	if grace > 0 {
		n.At = now.Add(grace)
	}
	return n
}

// least bounds from below how long a notice leaves whose time has passed: the clock of this machine may be wrong.
const least = 5 * time.Second

// between returns a time that a service names, but no earlier than least and no later than most from now.
func between(at, now time.Time, most time.Duration) time.Time {
	switch {
	case at.Before(now.Add(least)):
		return now.Add(least)
	case at.After(now.Add(most)):
		return now.Add(most)
	}
	return at
}

// Left describes how long is left until a notice's time, for people; empty where it is not known.
func (n Notice) Left(now time.Time) string {
	if n.At.IsZero() {
		return ""
	}
	return plan.Duration(n.At.Sub(now).Round(time.Second)) + " left"
}
