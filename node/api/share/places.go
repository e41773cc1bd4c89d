package share

import (
	"net"
	"net/netip"
	"sync"
)

// How many connections there are at a time; a browser opens six.
const (
	maxConnections = 128
	maxOfOne       = 24
)

// places accepts so many connections at a time, and of one address, and closes others.
type places struct {
	net.Listener
	mu  sync.Mutex // guards all and of
	all int
	of  map[netip.Prefix]int
}

func newPlaces(l net.Listener) *places {
	return &places{Listener: l, of: map[netip.Prefix]int{}}
}

// Accept returns the next connection that there is a place for.
func (p *places) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		who := subnet(addressOf(c.RemoteAddr().String()))
		if p.take(who) {
			return &placed{Conn: c, leave: sync.OnceFunc(func() { p.give(who) })}, nil
		}
		_ = c.Close() // whoever it was has others
	}
}

func (p *places) take(who netip.Prefix) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= maxConnections || p.of[who] >= maxOfOne {
		return false
	}
	p.all++
	p.of[who]++
	return true
}

func (p *places) give(who netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.of[who]--; p.of[who] == 0 {
		delete(p.of, who)
	}
}

// placed is a connection that has a place until it is closed.
type placed struct {
	net.Conn
	leave func()
}

// Close closes the connection and gives its place back.
func (c *placed) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// addressOf returns the address of "IP:PORT", zero for any other text.
func addressOf(text string) netip.Addr {
	at, _ := netip.ParseAddrPort(text)
	return at.Addr().Unmap().WithZone("")
}
