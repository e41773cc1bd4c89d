package announce

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mapping is a port of this container that its provider forwards from a public address.
type Mapping struct {
	// Inside is the port to listen on.
	Inside uint16
	// Addr is where others connect.
	Addr Addr
	// Variable names the environment variable that says so.
	Variable string
}

// providers lists the variables of providers. A variable PREFIXn holds the public port of port n inside. A number above
// 65535 asks for a port that is the same on both sides: then the value is both.
var providers = []struct {
	ip    string
	ports map[string]Transport // by prefix
}{
	{"RUNPOD_PUBLIC_IP", map[string]Transport{"RUNPOD_TCP_PORT_": TCP}},
	{"PUBLIC_IPADDR", map[string]Transport{"VAST_TCP_PORT_": TCP, "VAST_UDP_PORT_": UDP}},
}

// maxMappings bounds the mappings, more than any provider forwards.
const maxMappings = 128

// Mappings reads the mappings out of an environment of NAME=VALUE, sorted by port. A value that is of no use is left out;
// warnings say so.
func Mappings(environ []string) (found []Mapping, warnings []string) {
	values := map[string]string{}
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok {
			values[name] = strings.TrimSpace(value)
		}
	}
	warn := func(name, value, want string) {
		warnings = append(warnings, fmt.Sprintf("%s is %.80q, want %s: left out; say with --announce where others reach this machine", name, value, want))
	}
	for _, p := range providers {
		var mapped []Mapping
		for name, value := range values {
			for prefix, transport := range p.ports {
				number, ok := strings.CutPrefix(name, prefix)
				if !ok || value == "" || len(mapped) == maxMappings {
					continue
				}
				inside, err := strconv.ParseUint(number, 10, 32)
				if err != nil || inside == 0 {
					continue // another variable that begins so
				}
				public, err := strconv.ParseUint(value, 10, 16)
				if err != nil || public == 0 {
					warn(name, value, "a port from 1 to 65535")
					continue
				}
				if inside > 65535 {
					inside = public
				}
				mapped = append(mapped, Mapping{uint16(inside), Addr{Transport: transport, Port: uint16(public)}, name})
			}
		}
		if len(mapped) == 0 {
			continue
		}
		host, err := parseHost(values[p.ip])
		if err != nil {
			warn(p.ip, values[p.ip], "an IP address")
			continue
		}
		for _, m := range mapped {
			m.Addr.Host = host
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b Mapping) int {
		return cmp.Or(cmp.Compare(a.Inside, b.Inside), strings.Compare(a.Variable, b.Variable))
	})
	slices.Sort(warnings)
	return found, warnings
}

// At returns the mappings of a port inside.
func At(all []Mapping, port uint16) []Mapping {
	return slices.DeleteFunc(slices.Clone(all), func(m Mapping) bool { return m.Inside != port })
}

// Ports returns the ports inside that a user's program may listen on, those with UDP first.
func Ports(all []Mapping) (ports []uint16) {
	for _, udp := range []bool{true, false} {
		for _, m := range all {
			if m.Inside >= 1024 && (m.Addr.Transport == UDP || !udp) && !slices.Contains(ports, m.Inside) {
				ports = append(ports, m.Inside)
			}
		}
	}
	return ports
}
