package topics

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"golang.org/x/time/rate"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/peerstore"
	"pnode/swarm/streams"
	"pnode/swarm/tasks"
)

// The topics of a run, and the bound of a message's data.
const (
	Profiles = "profiles"
	Events   = "events"
	// MaxBytes bounds a message's data.
	MaxBytes = 64 << 10
	// ProtocolPrefix begins the names of GossipSub's protocols. Two members have a stream each way for as long as they are connected.
	ProtocolPrefix = "/meshsub/"
)

const (
	// topicVersion begins the names of topics. It changes with the form of messages.
	topicVersion = "pnode/2/"
	// overheadBytes bounds what a message has besides its data: signature, key, numbers, topic, and the frame's
	// control part.
	overheadBytes = 4 << 10
	// numberBytes is the length of the number, big-endian, that goes before a message's data. GossipSub's own number
	// begins with the clock at each start: where that was set back, others would drop all messages as old.
	numberBytes = 8
	// queueLen bounds the messages that wait for one subscription's handler; when it is
	// full the newest is dropped.
	queueLen = 256
	// Each author may send messagesPerS messages a second, and messagesBurst at once.
	messagesPerS, messagesBurst = 20, 100
)

// gossipParams returns how many others a member passes messages on to. Each author sends its messages to everybody whom it is
// connected to, and all members of a run are connected where they can be. So passing on is for those who are not, or whose
// line has just broken: GossipSub's own numbers have each member get each message seven times and more.
func gossipParams() pubsub.GossipSubParams {
	p := pubsub.DefaultGossipSubParams()
	p.D, p.Dlo, p.Dhi, p.Dscore, p.Dout = 2, 2, 3, 1, 0
	p.Dlazy, p.GossipFactor = 3, 0 // the members that are told each second which messages there were
	return p
}

// names returns what GossipSub calls the topics of a run.
func names(run plan.RunID) []string {
	prefix := topicVersion + string(run) + "/"
	return []string{prefix + Profiles, prefix + Events}
}

// Tags returns the tags by which GossipSub has libp2p's connection manager protect members that pass a run's messages on to this node.
func Tags(run plan.RunID) (tags []string) {
	for _, name := range names(run) {
		tags = append(tags, "pubsub:"+name)
	}
	return tags
}

// Topics passes messages between members with GossipSub: every message is signed by its author, who must be a
// member, is fresh, and within its author's rate, before it is passed on.
type Topics struct {
	Config
	sub    *pubsub.PubSub
	host   *membersHost
	replay *replay
	topics map[string]*pubsub.Topic
	number atomic.Uint64 // of this node's newest message
	// mu guards rates.
	mu    sync.Mutex
	rates map[peer.ID]*rate.Limiter
}

// Config holds what Topics need.
type Config struct {
	Run plan.RunID
	// Epoch is greater than the number of every message that this node sent before it was started.
	Epoch   uint64
	Streams *streams.Streams
	Peers   *admission.Peers
	Store   *peerstore.Store
	Tasks   *tasks.Group
	// Now returns the time by which memberships end.
	Now func() time.Time
	// Unknown is told of members that pass on messages whose author nobody has told of here; nil wants to know nothing.
	Unknown func(from peer.ID)
	Log     *slog.Logger
}

var (
	// ErrTooBig is wrapped for more bytes than a message carries.
	ErrTooBig = errors.New("message too big")
	// ErrUnknownTopic is wrapped for a topic that is not on the allow-list.
	ErrUnknownTopic = errors.New("unknown topic")
)

// New joins the topics of a run, until the swarm closes.
func New(cfg Config) (*Topics, error) {
	g := &Topics{
		Config: cfg, host: &membersHost{Host: cfg.Streams.Host, cfg: cfg, bus: eventbus.NewBus()},
		replay: &replay{seen: map[peer.ID]*window{}}, topics: map[string]*pubsub.Topic{}, rates: map[peer.ID]*rate.Limiter{},
	}
	g.number.Store(cfg.Epoch)
	var err error
	if g.host.news, err = g.host.bus.Emitter(new(event.EvtPeerIdentificationCompleted)); err != nil {
		return nil, fmt.Errorf("swarm: start gossip: %w", err)
	}
	names := names(cfg.Run)
	g.sub, err = pubsub.NewGossipSub(cfg.Tasks.Context, g.host,
		pubsub.WithMessageSignaturePolicy(pubsub.StrictSign),
		pubsub.WithMaxMessageSize(MaxBytes+overheadBytes),
		pubsub.WithSubscriptionFilter(pubsub.WrapLimitSubscriptionFilter(
			pubsub.NewAllowlistSubscriptionFilter(names...), len(names))),
		pubsub.WithPeerFilter(func(p peer.ID, _ string) bool { return cfg.Peers.Member(p) }),
		pubsub.WithFloodPublish(true),
		pubsub.WithGossipSubParams(gossipParams()),
		pubsub.WithPeerExchange(false),
		pubsub.WithAppSpecificRpcInspector(subscriptionsTo(names).restate),
	)
	if err != nil {
		return nil, fmt.Errorf("swarm: start gossip: %w", err)
	}
	for i, topic := range []string{Profiles, Events} {
		if g.topics[topic], err = g.sub.Join(names[i]); err != nil {
			return nil, fmt.Errorf("swarm: join topic %s: %w", topic, err)
		}
	}
	cfg.Tasks.Run(g.repair)
	return g, nil
}

// Admitted lets messages go to and come from a new member.
func (g *Topics) Admitted(p peer.ID) {
	err := g.host.news.Emit(event.EvtPeerIdentificationCompleted{
		Peer: p, Protocols: []protocol.ID{pubsub.GossipSubID_v13, pubsub.GossipSubID_v12, pubsub.GossipSubID_v11},
	})
	if err != nil {
		g.Log.Error("swarm: gossip", "peer", p, "err", err)
	}
}

// validate decides about a message whose signature is good, before it is decoded.
func (g *Topics) validate(m *pubsub.Message) pubsub.ValidationResult {
	author := m.GetFrom()
	number, data, ok := numbered(m)
	if !ok || len(data) > MaxBytes {
		return pubsub.ValidationReject
	}
	if author == g.host.ID() {
		return pubsub.ValidationAccept
	}
	// Not reject: the one who passed it on may know of a member we have yet to hear of.
	c, known := g.Store.Capability(author)
	if !known && g.Unknown != nil {
		g.Unknown(m.ReceivedFrom)
	}
	if !known || g.Peers.Blocked(author) || !g.Now().Before(c.Expires) {
		return pubsub.ValidationIgnore
	}
	g.mu.Lock()
	limiter := g.rates[author]
	if limiter == nil {
		limiter = rate.NewLimiter(messagesPerS, messagesBurst)
		g.rates[author] = limiter
	}
	g.mu.Unlock()
	if !limiter.Allow() || !g.replay.fresh(author, number) {
		return pubsub.ValidationIgnore
	}
	return pubsub.ValidationAccept
}

// numbered returns the number and the data of a message; ok is false where it is too short for a number.
func numbered(m *pubsub.Message) (number uint64, data []byte, ok bool) {
	b := m.GetData()
	if len(b) < numberBytes {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(b), b[numberBytes:], true
}

func (g *Topics) topic(topic string) (*pubsub.Topic, error) {
	if t := g.topics[topic]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("%w %q, want %q or %q", ErrUnknownTopic, topic, Profiles, Events)
}

// WaitFor blocks until n other members subscribe to topic, as far as this node knows.
func (g *Topics) WaitFor(ctx context.Context, topic string, n int) error {
	t, err := g.topic(topic)
	if err != nil {
		return err
	}
	events, err := t.EventHandler()
	if err != nil {
		return fmt.Errorf("swarm: watch topic %s: %w", topic, err)
	}
	defer events.Cancel()
	for len(t.ListPeers()) < n {
		look, cancel := context.WithTimeout(ctx, repairEvery) // repair tells nobody
		_, err := events.NextPeerEvent(look)
		cancel()
		if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return fmt.Errorf("swarm: %d members subscribe to topic %s, want %d: %w", len(t.ListPeers()), topic, n, err)
		}
	}
	return nil
}

// Publish sends data to every member that subscribes to topic, this node's own handlers
// included. It returns when the message is on its way; delivery is likely, not certain.
func (g *Topics) Publish(ctx context.Context, topic string, data []byte) error {
	t, err := g.topic(topic)
	if err == nil && len(data) > MaxBytes {
		err = fmt.Errorf("%w: %d bytes, at most %d are carried", ErrTooBig, len(data), MaxBytes)
	}
	if err == nil {
		err = t.Publish(ctx, append(binary.BigEndian.AppendUint64(nil, g.number.Add(1)), data...))
	}
	if err != nil {
		return fmt.Errorf("swarm: publish to %s: %w", topic, err)
	}
	return nil
}

// Subscribe calls handle for each message of topic, as decode returned it, one after the other, until the swarm
// closes. decode runs once for each message, before it is passed on to others, on
// the network's goroutines: it must be quick. A message it has an error for goes no
// further. A topic may be subscribed to once.
func (g *Topics) Subscribe(topic string, decode func(from plan.PeerID, data []byte) (any, error), handle func(from plan.PeerID, message any)) error {
	t, err := g.topic(topic)
	if err != nil {
		return fmt.Errorf("swarm: subscribe: %w", err)
	}
	check := func(_ context.Context, _ peer.ID, m *pubsub.Message) pubsub.ValidationResult {
		if result := g.validate(m); result != pubsub.ValidationAccept {
			return result
		}
		from := plan.PeerID(m.GetFrom().String())
		_, data, _ := numbered(m)
		var err error
		if m.ValidatorData, err = decode(from, data); err != nil {
			g.Log.Debug("swarm: gossip refused", "topic", topic, "from", from, "err", err)
			return pubsub.ValidationReject
		}
		return pubsub.ValidationAccept
	}
	var sub *pubsub.Subscription
	if err = g.sub.RegisterTopicValidator(t.String(), check, pubsub.WithValidatorInline(true)); err == nil {
		sub, err = t.Subscribe(pubsub.WithBufferSize(queueLen))
	}
	if err != nil {
		return fmt.Errorf("swarm: subscribe to %s: %w", topic, err)
	}
	g.Tasks.Run(func(ctx context.Context) {
		defer sub.Cancel()
		for {
			m, err := sub.Next(ctx)
			if err != nil {
				return
			}
			handle(plan.PeerID(m.GetFrom().String()), m.ValidatorData)
		}
	})
	return nil
}
