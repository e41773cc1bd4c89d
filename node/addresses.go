package node

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"pnode/node/config"
	"pnode/swarm/announce"
	"pnode/swarm/listen"
)

// settleAddresses decides where this node listens, how fast it relays, as asked now or before, and which addresses it tells
// others: --announce, the environment's
// PNODE_ANNOUNCE, what the folder has from before, or the ports that a provider of containers forwards. It prints what it
// took from the environment. An error wraps config.ErrInvalid.
func (o *opening) settleAddresses(environ []string, out Output) (err error) {
	m := &o.membership
	m.Relay = cmp.Or(o.cfg.Relay.String(), m.Relay)
	if err := o.relay.Set(m.Relay); err != nil {
		return fmt.Errorf("%w: --relay: %w", config.ErrInvalid, err)
	}
	m.Announce = cmp.Or(o.cfg.Announce, m.Announce)
	text, from := m.Announce, "--announce"
	if text == "" && config.Reachable(m.Listen) {
		text, from = os.Getenv(config.AnnounceEnv), config.AnnounceEnv
	}
	if o.announce, err = announce.Parse(text); err != nil {
		return fmt.Errorf("%w: %s is %q: %w", config.ErrInvalid, from, text, err)
	}
	if m.Listen == "" && len(o.announce.Addrs) > 0 {
		if o.announce.Port() == 0 {
			return fmt.Errorf("%w: %s is %s: want --listen HOST:PORT too, where the connections come in on this machine", config.ErrInvalid, from, text)
		}
		m.Listen = fmt.Sprintf(":%d", o.announce.Port())
	}
	if host, port, err := net.SplitHostPort(m.Listen); err == nil && port == "0" && o.announce.Port() != 0 {
		o.listen = net.JoinHostPort(host, strconv.Itoa(int(o.announce.Port()))) // any port will do, and others dial this one
	}
	if from == config.AnnounceEnv && text != "" {
		out.Notice(fmt.Sprintf("announcing %s: %s", text, config.AnnounceEnv))
	}
	if !o.announce.Bare && config.Reachable(m.Listen) {
		o.takeMappings(environ, out)
	}
	return nil
}

// takeMappings announces the ports that a provider forwards to where this node listens. Where any port will do, the node
// listens on one that is forwarded.
func (o *opening) takeMappings(environ []string, out Output) {
	all, warnings := announce.Mappings(environ)
	for _, w := range warnings {
		out.Notice(w)
	}
	where := cmp.Or(o.listen, o.membership.Listen)
	host, text, err := net.SplitHostPort(where)
	if err != nil || len(all) == 0 {
		return
	}
	number, _ := strconv.ParseUint(text, 10, 16) // Reachable has parsed it
	port := uint16(number)
	for _, inside := range announce.Ports(all) {
		if port != 0 {
			break
		}
		at := net.JoinHostPort(host, strconv.Itoa(int(inside)))
		addrs, err := listen.Parse(at)
		if err == nil {
			_, err = listen.Free(addrs)
		}
		if err == nil {
			port, o.listen = inside, at
			out.Notice(fmt.Sprintf("listening on port %d, which the provider forwards: %s", inside, announce.At(all, inside)[0].Variable))
		}
	}
	mine := announce.At(all, port)
	for _, m := range mine {
		o.announce.Addrs = append(o.announce.Addrs, m.Addr)
		out.Notice(fmt.Sprintf("announcing %s %s: %s", m.Addr.Transport, net.JoinHostPort(m.Addr.Host, strconv.Itoa(int(m.Addr.Port))), m.Variable))
	}
	if len(mine) == 0 {
		var ports []string
		for _, p := range announce.Ports(all) {
			ports = append(ports, strconv.Itoa(int(p)))
		}
		out.Notice(fmt.Sprintf("the provider forwards no port to %s where this node listens, only to %s: others cannot connect to it; have the provider forward a TCP port, or listen on one of these with --listen",
			where, cmp.Or(strings.Join(ports, ", "), "ports below 1024")))
	}
}
