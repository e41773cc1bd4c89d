package pairing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"pnode/swarm/admission"
	"pnode/swarm/host"
	"pnode/swarm/places"
	"pnode/swarm/streams"
	"pnode/swarm/tasks"
	"pnode/swarm/virtual"
)

// lan is a local network in virtual time.
type lan struct {
	t   *testing.T
	net *virtual.Net
}

// inLAN calls f in a bubble with a network.
func inLAN(t *testing.T, f func(t *testing.T, l lan)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := virtual.New(virtual.Line{Latency: time.Millisecond, BitsPerS: 100_000_000})
		t.Cleanup(n.Close)
		f(t, lan{t, n})
	})
}

// host adds a machine.
func (l lan) host() (*host.Host, *tasks.Group) {
	l.t.Helper()
	id, err := admission.NewIdentity()
	if err != nil {
		l.t.Fatal(err)
	}
	group := tasks.New()
	h, err := host.New(host.Config{Identity: id, Simulated: l.net.Host(), Peers: admission.NewPeers(), Tasks: group})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		group.Close()
		if err := h.Close(); err != nil {
			l.t.Error(err)
		}
		group.Wait()
	})
	return h, group
}

// owner adds a machine that answers newcomers.
func (l lan) owner(change func(*Config)) (s *Service, at peer.AddrInfo) {
	l.t.Helper()
	h, group := l.host()
	cfg := Config{
		Host: h, Tasks: group, Log: slog.New(slog.DiscardHandler), Run: "run-1", Name: "desk",
		Invite: func(context.Context) (string, error) { return "pnode1-xyz", nil },
		Local:  func(netip.Addr) bool { return true },
		Asked:  func(Newcomer) {},
	}
	if change != nil {
		change(&cfg)
	}
	return Serve(cfg), peer.AddrInfo{ID: h.ID(), Addrs: h.Addrs()}
}

// asking is a newcomer that asks.
type asking struct {
	host *host.Host
	code string
	over chan struct{} // closed when it has an answer
	got  string
	err  error
}

// ask has a new machine ask an owner's, and returns once it shows a code, or is not let in.
func (l lan) ask(at peer.AddrInfo, name string) *asking {
	l.t.Helper()
	h, _ := l.host()
	a := &asking{host: h, over: make(chan struct{})}
	shown := make(chan string, 1)
	go func() {
		defer close(a.over)
		run, err := Who(l.t.Context(), h, at)
		if err != nil {
			a.err = err
			return
		}
		a.got, a.err = Ask(l.t.Context(), h, run, name, func(code string) { shown <- code })
	}()
	select {
	case a.code = <-shown:
	case <-a.over:
	}
	return a
}

// TestANewcomerIsLetIn whose code was entered at the owner's node, and no other.
func TestANewcomerIsLetIn(t *testing.T) {
	inLAN(t, func(t *testing.T, l lan) {
		told := make(chan Newcomer, maxWaiting)
		owner, at := l.owner(func(c *Config) { c.Asked = func(n Newcomer) { told <- n } })
		if _, err := owner.Admit(t.Context(), "123456"); !errors.Is(err, ErrNobody) {
			t.Errorf("nobody asks: %v", err)
		}
		first := l.ask(at, "laptop")
		time.Sleep(3 * pollEvery)
		second := l.ask(at, "tablet\x1b[2J")
		waiting := owner.Waiting()
		if len(waiting) != 2 || waiting[0].Code != first.code || waiting[0].Name != "laptop" {
			t.Fatalf("waiting %+v", waiting)
		}
		if a, b := <-told, <-told; a != waiting[0] || b.Code != second.code {
			t.Errorf("told %+v, %+v", a, b)
		}
		n, err := owner.Admit(t.Context(), first.code)
		if err != nil || n != waiting[0] {
			t.Errorf("admit: %+v, %v", n, err)
		}
		<-first.over
		if first.err != nil || first.got != "pnode1-xyz" {
			t.Errorf("the newcomer gets %q, %v", first.got, first.err)
		}
		if left := owner.Waiting(); len(left) != 1 || left[0].Code != second.code || strings.Contains(left[0].Name, "\x1b") {
			t.Errorf("still waiting: %+v", left)
		}
		if _, err := owner.Admit(t.Context(), first.code); !errors.Is(err, ErrOtherCode) {
			t.Errorf("the same code again: %v", err)
		}
		<-second.over
		if !errors.Is(second.err, ErrRefused) || !strings.Contains(second.err.Error(), "another code") {
			t.Errorf("who waited when a wrong code was entered: %q, %v", second.got, second.err)
		}
	})
}

// TestARefusalIsToldAtOnce: and to nobody else; who was refused may ask again.
func TestARefusalIsToldAtOnce(t *testing.T) {
	inLAN(t, func(t *testing.T, l lan) {
		owner, at := l.owner(nil)
		showing := func(code string) func(Newcomer) bool { return func(n Newcomer) bool { return n.Code == code } }
		if refused := owner.Refuse(func(Newcomer) bool { return true }); len(refused) > 0 {
			t.Errorf("nobody asks: %+v", refused)
		}
		laptop, tablet := l.ask(at, "laptop"), l.ask(at, "tablet")
		began := time.Now()
		if refused := owner.Refuse(showing(laptop.code)); len(refused) != 1 || refused[0].Name != "laptop" {
			t.Fatalf("refused: %+v", refused)
		}
		<-laptop.over
		if took := time.Since(began); !errors.Is(laptop.err, ErrRefused) || !strings.Contains(laptop.err.Error(), "does not let this machine in") || took > 2*pollEvery {
			t.Errorf("the newcomer gets %q, %v after %s", laptop.got, laptop.err, took)
		}
		if left := owner.Waiting(); len(left) != 1 || left[0].Code != tablet.code {
			t.Errorf("still waiting: %+v", left)
		}
		if refused := owner.Refuse(showing(laptop.code)); len(refused) > 0 {
			t.Errorf("the same code again: %+v", refused)
		}
		if again := l.ask(at, "laptop"); again.code == "" || again.err != nil {
			t.Errorf("a second request: %+v", again)
		}
		if refused := owner.Refuse(func(Newcomer) bool { return true }); len(refused) != 2 || refused[0].Name != "tablet" || refused[1].Name != "laptop" {
			t.Errorf("all refused: %+v", refused)
		}
	})
}

// TestWhoIsInBetweenShowsAnotherCode: a machine that plays the owner to the newcomer, and the newcomer to the owner, has two codes, and gets no invite
// when people enter the one that the newcomer shows.
func TestWhoIsInBetweenShowsAnotherCode(t *testing.T) {
	inLAN(t, func(t *testing.T, l lan) {
		owner, at := l.owner(nil)
		between, betweenAt := l.owner(nil) // says the same run and name
		victim, thief := l.ask(betweenAt, "laptop"), l.ask(at, "laptop")
		if len(between.Waiting()) != 1 || victim.code == thief.code {
			t.Fatalf("codes %s and %s", victim.code, thief.code)
		}
		if _, err := owner.Admit(t.Context(), victim.code); !errors.Is(err, ErrOtherCode) {
			t.Errorf("the code of the newcomer: %v", err)
		}
		<-thief.over
		if !errors.Is(thief.err, ErrRefused) || thief.got != "" {
			t.Errorf("who is in between: %q, %v", thief.got, thief.err)
		}
	})
}

// TestRequestsEnd: people have 5 minutes, a newcomer that is silent is forgotten after 15 s, and an invite that cannot be made yet leaves it waiting.
func TestRequestsEnd(t *testing.T) {
	inLAN(t, func(t *testing.T, l lan) {
		notYet := errors.New("no majority")
		var ready atomic.Bool
		owner, at := l.owner(func(c *Config) {
			c.Invite = func(context.Context) (string, error) {
				if !ready.Load() {
					return "", notYet
				}
				return "pnode1-later", nil
			}
		})
		slow := l.ask(at, "slow")
		time.Sleep(waitTime - 10*time.Second)
		if len(owner.Waiting()) != 1 {
			t.Error("forgotten early")
		}
		<-slow.over
		if !errors.Is(slow.err, ErrRefused) || !strings.Contains(slow.err.Error(), "within 5 min") {
			t.Errorf("after 5 minutes: %v", slow.err)
		}
		gone := l.ask(at, "gone")
		if err := gone.host.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(silentTime + 2*time.Second)
		if left := owner.Waiting(); len(left) != 0 {
			t.Errorf("still waiting: %+v", left)
		}
		<-gone.over
		again := l.ask(at, "again")
		if _, err := owner.Admit(t.Context(), again.code); !errors.Is(err, notYet) || len(owner.Waiting()) != 1 {
			t.Errorf("before there is an invite: %v", err)
		}
		ready.Store(true)
		if _, err := owner.Admit(t.Context(), again.code); err != nil {
			t.Error(err)
		}
		if <-again.over; again.got != "pnode1-later" {
			t.Errorf("%q, %v", again.got, again.err)
		}
	})
}

// TestFewWait: one address has two requests, all have eight, and a place is free again some time after it was given back.
func TestFewWait(t *testing.T) {
	inLAN(t, func(t *testing.T, l lan) {
		owner, at := l.owner(nil)
		h, _ := l.host()
		run, err := Who(t.Context(), h, at)
		if err != nil {
			t.Fatal(err)
		}
		again := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			_, err := Ask(ctx, h, run, "laptop", func(string) {})
			return err
		}
		for range maxPerAddress {
			if err := again(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a request: %v", err)
			}
		}
		if err := again(); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "too many") {
			t.Errorf("one more of an address: %v", err)
		}
		for i := range maxWaiting {
			l.ask(at, fmt.Sprint(i))
		}
		if n := len(owner.Waiting()); n > maxWaiting || n < maxWaiting/2 {
			t.Errorf("%d wait", n)
		}
		time.Sleep(waitTime + restTime)
		if err := again(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after a while: %v", err)
		}
	})
}

// TestRequestsAreRationed: 32 begin within 5 minutes, from however many addresses, and as many in the next 5.
func TestRequestsAreRationed(t *testing.T) {
	s := &Service{places: places.New(maxWaiting, maxPerAddress)}
	at, now := netip.MustParseAddr("192.168.1.1"), time.Unix(1_700_000_000, 0)
	begin := func() (begun int) {
		for range 4 * maxBegun {
			if at = at.Next(); s.begin(at, now) {
				s.places.Give(at)
				begun++
			}
		}
		return begun
	}
	if n := begin(); n != maxBegun {
		t.Errorf("%d begin at once", n)
	}
	if now = now.Add(waitTime); begin() != 0 {
		t.Error("more within 5 minutes")
	}
	if now = now.Add(time.Second); begin() != maxBegun {
		t.Error("none after 5 minutes")
	}
}

// TestNoAnswerToOthers: to a number that is not the one of the commitment, to bytes that are no request, to what does not begin one, and to
// whoever is not in the local network.
func TestNoAnswerToOthers(t *testing.T) {
	inLAN(t, func(t *testing.T, l lan) {
		var far atomic.Bool
		owner, at := l.owner(func(c *Config) { c.Local = func(netip.Addr) bool { return !far.Load() } })
		h, _ := l.host()
		var committed transcript
		commit := message{Kind: kindCommit, Number: committed.commitment(), Text: "liar"}
		reset := func(what string, talk func(network.Stream) (message, error)) {
			t.Helper()
			var answer message
			err := exchange(t.Context(), h, at, func(st network.Stream) (err error) {
				answer, err = talk(st)
				return err
			})
			if err == nil || errors.Is(err, admission.ErrMalformed) || answer != (message{}) {
				t.Errorf("%s: %+v, %v", what, answer, err)
			}
		}
		reset("another number", func(st network.Stream) (message, error) {
			if first, err := ask(st, commit); err != nil || first.Kind != kindNumber {
				t.Errorf("%+v, %v", first, err)
			}
			return ask(st, message{Kind: kindReveal, Number: number{1}})
		})
		reset("no request", func(st network.Stream) (message, error) {
			if err := streams.WriteMessage(st, []byte("GET / HTTP/1.1")); err != nil {
				return message{}, err
			}
			return receive(st)
		})
		reset("no beginning", func(st network.Stream) (message, error) { return ask(st, message{Kind: kindReveal}) })
		reset("nothing", receive)
		far.Store(true)
		reset("from far", func(st network.Stream) (message, error) { return ask(st, message{Kind: kindWho}) })
		if left := owner.Waiting(); len(left) != 0 {
			t.Errorf("waiting: %+v", left)
		}
	})
}
