package pairing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	corehost "github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/planner/plan"
	"pnode/swarm/places"
	"pnode/swarm/streams"
	"pnode/swarm/tasks"
)

const (
	proto = protocol.ID("/pnode/pairing/1")

	// maxWaiting is how many newcomers wait for people at once, maxPerAddress those of one address.
	maxWaiting    = 8
	maxPerAddress = 2
	// maxBegun bounds the requests that begin within waitTime: who is in between has a code of its own with each, and hopes for one that is the
	// newcomer's.
	maxBegun = 32
	// waitTime is how long a request waits for people, silentTime how long it outlives the newcomer's last question, keptTime how long the answer
	// is kept for it.
	waitTime   = 5 * time.Minute
	silentTime = 15 * time.Second
	keptTime   = time.Minute
	// restTime is how long a request that was not admitted counts as one of its address.
	restTime = 30 * time.Second
	// messageTime bounds how long a message of a newcomer takes.
	messageTime = 2 * time.Second
	// maxStreams is how many streams are answered at once.
	maxStreams = 16
)

// Errors of Admit.
var (
	// ErrNobody says that no newcomer waits.
	ErrNobody = errors.New("nobody in the local network asks to join")
	// ErrOtherCode says that those who waited were refused.
	ErrOtherCode = errors.New("no newcomer shows that code")
)

// Config holds what a Service needs.
type Config struct {
	Host  corehost.Host
	Tasks *tasks.Group
	Log   *slog.Logger
	Run   plan.RunID
	// Name is what this machine calls itself.
	Name string
	// Invite makes an invite for one node.
	Invite func(context.Context) (string, error)
	// Local reports whether an address is one of the local network. Others get no answer.
	Local func(netip.Addr) bool
	// Asked is called for each newcomer that begins to wait. It must not block.
	Asked func(Newcomer)
}

// Newcomer is a node that waits to be let in.
type Newcomer struct {
	// Name is what it calls itself, Address where it is.
	Name    string
	Address netip.Addr
	// Code is what it shows if nobody is in between.
	Code  string
	Since time.Time
}

// Service answers newcomers on an owner's node.
type Service struct {
	cfg     Config
	places  *places.Places
	streams chan struct{}
	// mu guards requests and begun, when the requests of the last waitTime began.
	mu       sync.Mutex
	requests map[peer.ID]*request
	begun    []time.Time
}

// request is one of a newcomer.
type request struct {
	Newcomer
	heard time.Time // from the newcomer
	// answer is kindWaiting until people have decided at the time answered.
	answer   message
	answered time.Time
}

// Serve answers newcomers until the tasks end.
func Serve(cfg Config) *Service {
	s := &Service{cfg: cfg, places: places.New(maxWaiting, maxPerAddress), streams: make(chan struct{}, maxStreams), requests: map[peer.ID]*request{}}
	s.cfg.Name = plan.Clip(cfg.Name, maxNameBytes)
	cfg.Host.SetStreamHandler(proto, s.serve)
	return s
}

// serve answers one stream of a newcomer, or resets it.
func (s *Service) serve(st network.Stream) {
	if !s.cfg.Tasks.Enter() {
		st.Reset()
		return
	}
	defer s.cfg.Tasks.Leave()
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		st.Reset()
		return
	}
	if err := s.answer(st); err != nil {
		s.cfg.Log.Debug("swarm: request for an invite", "peer", st.Conn().RemotePeer(), "err", err)
		st.Reset()
		return
	}
	st.Close()
}

// answer reads what a newcomer wants, and answers. Whoever opens with anything else gets no answer.
func (s *Service) answer(st network.Stream) error {
	if at := address(st.Conn()); !s.cfg.Local(at) {
		return fmt.Errorf("%s is not in the local network", at)
	}
	first, err := receive(st)
	if err != nil {
		return err
	}
	switch first.Kind {
	case kindWho:
		return send(st, s.about())
	case kindCommit:
		return s.pair(st, first)
	case kindPoll:
		return send(st, s.poll(st.Conn().RemotePeer(), time.Now()))
	default:
		return malformed("a request that begins with kind %d", first.Kind)
	}
}

func (s *Service) about() message {
	return message{Kind: kindAbout, Text: string(s.cfg.Run), More: s.cfg.Name}
}

// pair takes the request of a newcomer that has sent its commitment: gives the own number, gets the newcomer's, and has people told.
func (s *Service) pair(st network.Stream, commit message) error {
	from := address(st.Conn())
	if !s.begin(from, time.Now()) {
		return send(st, message{Kind: kindRefused, Text: "too many newcomers wait: try again in a minute"})
	}
	t := transcript{
		Newcomer: st.Conn().RemotePeer(), Owner: s.cfg.Host.ID(), Run: s.cfg.Run,
		NewcomerName: plan.Clip(commit.Text, maxNameBytes), OwnerName: s.cfg.Name,
	}
	err := t.exchange(st, commit)
	if err != nil {
		s.places.GiveAfter(from, restTime)
		return err
	}
	n := Newcomer{Name: t.NewcomerName, Address: from, Code: t.code(), Since: time.Now()}
	s.put(t.Newcomer, n)
	s.cfg.Log.Info("swarm: a newcomer asks for an invite", "peer", t.Newcomer, "name", n.Name, "addr", st.Conn().RemoteMultiaddr())
	s.cfg.Asked(n)
	return send(st, message{Kind: kindWaiting})
}

// begin takes a place for one more request of an address, and reports whether there was one.
func (s *Service) begin(from netip.Addr, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	s.begun = slices.DeleteFunc(s.begun, func(at time.Time) bool { return now.Sub(at) > waitTime })
	if len(s.begun) >= maxBegun || !s.places.Take(from) {
		return false
	}
	s.begun = append(s.begun, now)
	return true
}

// exchange gives the owner's number, and takes the newcomer's, which must be the one it has committed to.
func (t *transcript) exchange(st network.Stream, commit message) (err error) {
	if t.OwnerNumber, err = newNumber(); err != nil {
		return err
	}
	if err := send(st, message{Kind: kindNumber, Number: t.OwnerNumber}); err != nil {
		return err
	}
	reveal, err := receive(st)
	if err != nil {
		return err
	}
	if t.NewcomerNumber = reveal.Number; reveal.Kind != kindReveal || t.commitment() != commit.Number {
		return malformed("a number that is not the one of the commitment")
	}
	return nil
}

// put has a newcomer wait, in place of its request before. The caller has taken a place for it.
func (s *Service) put(p peer.ID, n Newcomer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(n.Since)
	s.drop(p)
	s.requests[p] = &request{Newcomer: n, heard: n.Since, answer: message{Kind: kindWaiting}}
}

// poll returns what came of a peer's request.
func (s *Service) poll(p peer.ID, now time.Time) message {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	r, ok := s.requests[p]
	if !ok {
		return message{Kind: kindRefused, Text: fmt.Sprintf("the owner has not answered within %s", plan.Duration(waitTime))}
	}
	r.heard = now
	return r.answer
}

// sweep forgets requests whose time is over. The caller holds mu.
func (s *Service) sweep(now time.Time) {
	for p, r := range s.requests {
		waits := r.answer.Kind == kindWaiting
		if waits && (now.Sub(r.Since) > waitTime || now.Sub(r.heard) > silentTime) || !waits && now.Sub(r.answered) > keptTime {
			s.drop(p)
		}
	}
}

// drop forgets a peer's request, if there is one. The caller holds mu.
func (s *Service) drop(p peer.ID) {
	r, ok := s.requests[p]
	if !ok {
		return
	}
	delete(s.requests, p)
	if r.answer.Kind == kindInvite {
		s.places.Give(r.Address)
	} else {
		s.places.GiveAfter(r.Address, restTime)
	}
}

// Waiting lists the newcomers that wait, the first one first.
func (s *Service) Waiting() []Newcomer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(time.Now())
	var all []Newcomer
	for _, r := range s.requests {
		if r.answer.Kind == kindWaiting {
			all = append(all, r.Newcomer)
		}
	}
	slices.SortFunc(all, inOrder)
	return all
}

// inOrder compares newcomers by when they began to ask.
func inOrder(a, b Newcomer) int { return a.Since.Compare(b.Since) }

// Admit gives an invite to the newcomer with this code, which people have seen on its screen. A code that none or several have refuses all who wait:
// it shows that somebody is in between, or guesses. The error wraps ErrNobody or ErrOtherCode, or is that of the invite; then the newcomer waits on.
func (s *Service) Admit(ctx context.Context, code string) (Newcomer, error) {
	waiting := s.Waiting()
	if len(waiting) == 0 {
		return Newcomer{}, ErrNobody
	}
	with := slices.DeleteFunc(slices.Clone(waiting), func(n Newcomer) bool { return n.Code != code })
	if len(with) != 1 {
		s.settle(message{Kind: kindRefused, Text: "the owner has entered another code: ask again, and compare the codes"}, func(Newcomer) bool { return true })
		return Newcomer{}, fmt.Errorf("%w: %s refused: have the newcomer ask again, and compare the codes", ErrOtherCode, those(len(waiting)))
	}
	invite, err := s.cfg.Invite(ctx)
	if err != nil {
		return Newcomer{}, err
	}
	if len(s.settle(message{Kind: kindInvite, Text: invite}, func(n Newcomer) bool { return n == with[0] })) == 0 {
		return Newcomer{}, fmt.Errorf("%s has stopped asking meanwhile: have it ask again", with[0].Name)
	}
	return with[0], nil
}

// Refuse tells newcomers that wait, and that whom returns true for, at once that people do not let them in. They may ask again. It returns them, the
// first one first.
func (s *Service) Refuse(whom func(Newcomer) bool) []Newcomer {
	return s.settle(message{Kind: kindRefused, Text: "the owner does not let this machine in; ask again if that was a mistake"}, whom)
}

// those returns the subject and the verb for so many newcomers.
func those(n int) string {
	if n == 1 {
		return "the one that waited was"
	}
	return fmt.Sprintf("the %d that waited were", n)
}

// settle gives an answer to those who wait and for whom it is, and returns them, the first one first.
func (s *Service) settle(answer message, whose func(Newcomer) bool) (settled []Newcomer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.sweep(now)
	for _, r := range s.requests {
		if r.answer.Kind == kindWaiting && whose(r.Newcomer) {
			r.answer, r.answered = answer, now
			settled = append(settled, r.Newcomer)
		}
	}
	slices.SortFunc(settled, inOrder)
	return settled
}

// address returns where a connection comes from; zero over a relay.
func address(c network.ConnMultiaddrs) netip.Addr {
	ip, err := manet.ToIP(c.RemoteMultiaddr())
	if err != nil {
		return netip.Addr{}
	}
	at, _ := netip.AddrFromSlice(ip)
	return at.Unmap()
}

// send writes a message.
func send(st network.Stream, m message) error {
	if err := st.SetWriteDeadline(time.Now().Add(messageTime)); err != nil {
		return err
	}
	return streams.WriteMessage(st, m.append(nil))
}

// receive reads a message, which must be there in time.
func receive(st network.Stream) (message, error) {
	if err := st.SetReadDeadline(time.Now().Add(messageTime)); err != nil {
		return message{}, err
	}
	b, err := streams.ReadMessage(st, maxMessageBytes)
	if err != nil {
		return message{}, err
	}
	return decodeMessage(b)
}
