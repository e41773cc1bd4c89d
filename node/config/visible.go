package config

import "pnode/swarm/listen"

// AnyPort is the address to listen on for a node that others should reach, wherever that is.
const AnyPort = ":0"

// Reachable reports whether machines other than this one can connect to a node that listens at this "host:port"; at
// none it listens on loopback.
func Reachable(at string) bool {
	a, err := listen.Parse(at)
	return at != "" && err == nil && !a[0].Addr().IsLoopback()
}

// TellOwner are the first lines of a run that others can join: what its members get to see.
func TellOwner() []string {
	return []string{
		"members of this run can read its text and its weights, and see the address, name and devices of every machine",
		"their connections are encrypted; not all that they compute is checked: invite people whom you trust (`pnode help trust`)",
	}
}

// TellMember are the first lines of a node that enters a run of other machines: what each side gets to see.
func TellMember() []string {
	return []string{
		"all members of the run see this machine's address, name and devices; this machine can read the run's text and weights",
		"it computes what the run's leader plans, and runs no programs of others: join people whom you trust (`pnode help trust`)",
	}
}
