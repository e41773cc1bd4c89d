package swarm

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"

	"pnode/planner/plan"
)

// The topics of a run.
const (
	TopicProfiles = "profiles"
	TopicEvents   = "events"
	// MaxGossipBytes bounds a message's data.
	MaxGossipBytes = 64 << 10
)

const (
	// gossipOverhead is what a message has beside its data: signature, key, sequence
	// number, topic, and the frame's control part.
	gossipOverhead = 4 << 10
	// gossipQueue is how many messages wait for one subscription's handler; when it is
	// full the newest is dropped.
	gossipQueue = 256
	// Each author may send gossipPerS messages a second, and gossipBurst at once.
	gossipPerS, gossipBurst = 20, 100
)

// gossip is GossipSub between members: every message is signed by its author, who must be
// a member, is fresh, and within its author's rate, before it is passed on.
type gossip struct {
	swarm  *Swarm
	sub    *pubsub.PubSub
	host   *gossipHost
	replay *replay
	// mu guards topics and rates.
	mu     sync.Mutex
	topics map[string]*pubsub.Topic
	rates  map[peer.ID]*rate.Limiter
}

func newGossip(s *Swarm) (*gossip, error) {
	h, err := newGossipHost(s)
	if err != nil {
		return nil, err
	}
	g := &gossip{
		swarm: s, host: h, replay: newReplay(),
		topics: map[string]*pubsub.Topic{}, rates: map[peer.ID]*rate.Limiter{},
	}
	names := []string{g.name(TopicProfiles), g.name(TopicEvents)}
	g.sub, err = pubsub.NewGossipSub(s.tasks.ctx, h,
		pubsub.WithMessageSignaturePolicy(pubsub.StrictSign),
		pubsub.WithMaxMessageSize(MaxGossipBytes+gossipOverhead),
		pubsub.WithSubscriptionFilter(pubsub.WrapLimitSubscriptionFilter(
			pubsub.NewAllowlistSubscriptionFilter(names...), len(names))),
		pubsub.WithPeerFilter(func(p peer.ID, _ string) bool { return s.door.isMember(p) }),
		pubsub.WithFloodPublish(true),
		pubsub.WithPeerExchange(false),
		pubsub.WithDefaultValidator(g.validate, pubsub.WithValidatorInline(true)),
	)
	if err != nil {
		return nil, fmt.Errorf("swarm: start gossip: %w", err)
	}
	for i, topic := range []string{TopicProfiles, TopicEvents} {
		if g.topics[topic], err = g.sub.Join(names[i]); err != nil {
			return nil, fmt.Errorf("swarm: join topic %s: %w", topic, err)
		}
	}
	return g, nil
}

// name is the topic's name on the network.
func (g *gossip) name(topic string) string { return "pnode/" + string(g.swarm.cfg.Run) + "/" + topic }

// admitted tells pubsub that a peer may be talked to.
func (g *gossip) admitted(p peer.ID) { g.host.announce(p) }

// validate judges a message whose signature was found good.
func (g *gossip) validate(_ context.Context, _ peer.ID, m *pubsub.Message) pubsub.ValidationResult {
	author := m.GetFrom()
	if len(m.GetData()) > MaxGossipBytes || len(m.GetSeqno()) != 8 {
		return pubsub.ValidationReject
	}
	if author == g.swarm.host.ID() {
		return pubsub.ValidationAccept
	}
	// Not reject: the one who passed it on may know of a member we have yet to hear of.
	c, known := g.swarm.book.capability(author)
	if !known || g.swarm.door.isBlocked(author) || !time.Now().Before(c.Expires) {
		return pubsub.ValidationIgnore
	}
	if !g.limiter(author).Allow() || !g.replay.fresh(author, binary.BigEndian.Uint64(m.GetSeqno())) {
		return pubsub.ValidationIgnore
	}
	return pubsub.ValidationAccept
}

func (g *gossip) limiter(author peer.ID) *rate.Limiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.rates[author]
	if l == nil {
		l = rate.NewLimiter(gossipPerS, gossipBurst)
		g.rates[author] = l
	}
	return l
}

func (g *gossip) topic(topic string) (*pubsub.Topic, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.topics[topic]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("%w %q, want %q or %q", ErrUnknownTopic, topic, TopicProfiles, TopicEvents)
}

// Publish sends data to every member that subscribes to topic, this node's own handlers
// included. It returns when the message is on its way; delivery is likely, not certain.
func (s *Swarm) Publish(ctx context.Context, topic string, data []byte) error {
	t, err := s.gossip.topic(topic)
	if err == nil && len(data) > MaxGossipBytes {
		err = fmt.Errorf("%w: %d bytes, at most %d are carried", ErrTooBig, len(data), MaxGossipBytes)
	}
	if err == nil {
		err = t.Publish(ctx, data)
	}
	if err != nil {
		return fmt.Errorf("swarm: publish to %s: %w", topic, err)
	}
	return nil
}

// Subscribe calls handle for each message of topic, one after the other, until the swarm
// closes. validate, which may be nil, runs before the message is passed on to others, on
// the network's goroutines: it must be quick. A message it has an error for goes no
// further. A topic may be subscribed to once.
func (s *Swarm) Subscribe(topic string, validate func(from plan.PeerID, data []byte) error, handle func(from plan.PeerID, data []byte)) error {
	if err := s.subscribe(topic, validate, handle); err != nil {
		return fmt.Errorf("swarm: subscribe to %s: %w", topic, err)
	}
	return nil
}

func (s *Swarm) subscribe(topic string, validate func(plan.PeerID, []byte) error, handle func(plan.PeerID, []byte)) error {
	t, err := s.gossip.topic(topic)
	if err != nil {
		return err
	}
	check := func(_ context.Context, _ peer.ID, m *pubsub.Message) bool {
		from := plan.PeerID(m.GetFrom().String())
		if validate == nil {
			return true
		}
		err := validate(from, m.GetData())
		if err != nil {
			s.log.Debug("swarm: gossip refused", "topic", topic, "from", from, "err", err)
		}
		return err == nil
	}
	if err := s.gossip.sub.RegisterTopicValidator(t.String(), check, pubsub.WithValidatorInline(true)); err != nil {
		return err
	}
	sub, err := t.Subscribe(pubsub.WithBufferSize(gossipQueue))
	if err != nil {
		return err
	}
	s.tasks.run(func(ctx context.Context) {
		defer sub.Cancel()
		for {
			m, err := sub.Next(ctx)
			if err != nil {
				return
			}
			handle(plan.PeerID(m.GetFrom().String()), m.GetData())
		}
	})
	return nil
}
