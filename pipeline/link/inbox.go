package link

import (
	"context"
	"fmt"
	"sync"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// key names a message for its receiver.
type key struct {
	from plan.PeerID
	tag  wire.Tag
}

// account is a peer and class, for which the bound of an inbox counts.
type account struct {
	from  plan.PeerID
	class wire.Class
}

// load counts what an account has in the inbox, admitted or held.
type load struct{ messages, bytes int }

func (k key) account() account { return account{k.from, k.tag.Kind.Class()} }

func (k key) String() string { return fmt.Sprintf("%v from %s", k.tag, k.from) }

// admission is a message that may come: who brings it, which is not whom it is from where a substitute sends it, and how
// large it is.
type admission struct {
	by   plan.PeerID
	size int
}

// received is a message, or the reason why it will not come.
type received struct {
	payload []byte
	err     error
}

// remembered bounds the received messages that an inbox knows by key, to recognise what comes a second
// time.
const remembered = 8192

// inbox holds the messages of a session until Receive takes them. A message is admitted before its
// payload is read, then delivered.
type inbox struct {
	most load // of each account

	mu       sync.Mutex // guards everything below
	loads    map[account]load
	admitted map[key]admission // not yet delivered
	held     map[key][]byte
	waiting  map[key]chan received // capacity 1
	received map[key]bool
	others   map[key]plan.PeerID // who brought a message that is from another peer by the plan
	order    []key               // ring of the keys in received
	next     int                 // in order
	gone     map[plan.PeerID]error
	replaced map[plan.PeerID]bool        // they bring nothing any more
	commits  map[plan.PeerID]wire.Frame  // the newest complete one of each sender, of a replaced one before it was
	skipped  func(k key, bytes int) bool // what nobody receives; nil: nothing
	dropped  activations                 // nobody receives them either
	err      error
	changed  broadcast
}

// activations name messages of a step with an index below a bound.
type activations struct {
	step  plan.Step
	below int32
}

func (a activations) contain(t wire.Tag) bool {
	return t.Kind == wire.Activation && t.Step == a.step && t.Index < a.below
}

// admit blocks until a message of size bytes may be held. It may at once when its account has
// room or is empty, or when somebody waits for it. A duplicate, and what is skipped, is refused with
// ErrDuplicate, and what a replaced peer brings with ErrLost.
func (b *inbox) admit(ctx context.Context, k key, a admission) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if b.err != nil {
			return b.err
		}
		if b.replaced[a.by] {
			return fmt.Errorf("%w: another peer goes on in its place", ErrLost)
		}
		_, held := b.held[k]
		if _, comes := b.admitted[k]; comes || held || b.received[k] || b.dropped.contain(k.tag) || b.skipped != nil && b.skipped(k, a.size) {
			return fmt.Errorf("%w: %v", ErrDuplicate, k)
		}
		used := b.loads[k.account()]
		more := load{used.messages + 1, used.bytes + a.size}
		if used.messages == 0 || more.messages <= b.most.messages && more.bytes <= b.most.bytes || b.waiting[k] != nil {
			b.loads[k.account()] = more
			b.admitted[k] = a
			return nil
		}
		if err := b.changed.await(ctx, &b.mu); err != nil {
			return err
		}
	}
}

// put takes a whole message in that somebody keeps in memory anyway: it needs no room. A duplicate changes nothing.
func (b *inbox) put(k key, by plan.PeerID, payload []byte) {
	b.mu.Lock()
	_, held := b.held[k]
	if _, comes := b.admitted[k]; b.err != nil || comes || held || b.received[k] || b.dropped.contain(k.tag) {
		b.mu.Unlock()
		return
	}
	used := b.loads[k.account()]
	b.loads[k.account()] = load{used.messages + 1, used.bytes + len(payload)}
	b.admitted[k] = admission{by: by, size: len(payload)}
	b.mu.Unlock()
	b.deliver(k, by, payload)
}

// deliver hands over a message that was admitted of the peer that brings it, unless that one was lost meanwhile.
func (b *inbox) deliver(k key, by plan.PeerID, payload []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.admitted[k].by != by {
		return
	}
	delete(b.admitted, k)
	if by != k.from {
		b.others[k] = by
	}
	if k.tag.Kind == wire.KindCommit && k.tag.Step > b.commits[k.from].Tag.Step && !b.replaced[k.from] {
		b.commits[k.from] = wire.Frame{Tag: k.tag, Payload: payload}
	}
	ch := b.waiting[k]
	if ch == nil {
		b.held[k] = payload
		return
	}
	delete(b.waiting, k)
	b.consume(k, payload)
	ch <- received{payload: payload}
}

// consume books a message as received.
func (b *inbox) consume(k key, payload []byte) {
	used := b.loads[k.account()]
	b.loads[k.account()] = load{used.messages - 1, used.bytes - len(payload)}
	if len(b.order) < remembered {
		b.order = append(b.order, k)
	} else {
		delete(b.received, b.order[b.next])
		delete(b.others, b.order[b.next])
		b.order[b.next] = k
		b.next = (b.next + 1) % remembered
	}
	b.received[k] = true
	b.changed.wake()
}

// receive blocks until a message is complete. What is held comes out even when its sender is gone.
func (b *inbox) receive(ctx context.Context, k key) ([]byte, error) {
	b.mu.Lock()
	if b.err != nil {
		defer b.mu.Unlock()
		return nil, b.err
	}
	if payload, held := b.held[k]; held {
		defer b.mu.Unlock()
		delete(b.held, k)
		b.consume(k, payload)
		return payload, nil
	}
	if b.received[k] || b.waiting[k] != nil {
		defer b.mu.Unlock()
		return nil, fmt.Errorf("%w: %v", ErrDuplicate, k)
	}
	if err := b.gone[k.from]; err != nil {
		defer b.mu.Unlock()
		return nil, err
	}
	ch := make(chan received, 1)
	b.waiting[k] = ch
	b.changed.wake() // a reader may hold back exactly this message
	b.mu.Unlock()
	select {
	case a := <-ch:
		return a.payload, a.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting[k] == ch {
		delete(b.waiting, k)
		return nil, ctx.Err()
	}
	a := <-ch // came at the same moment
	return a.payload, a.err
}

// lose fails everybody who waits, now or later, for a message from peer. What it has brought in part does not count.
func (b *inbox) lose(peer plan.PeerID, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone[peer] = err
	b.drop(peer)
	for k, ch := range b.waiting {
		if k.from == peer {
			delete(b.waiting, k)
			ch <- received{err: err}
		}
	}
}

// drop forgets what a peer has brought in part. Callers hold mu.
func (b *inbox) drop(peer plan.PeerID) {
	for k, a := range b.admitted {
		if a.by == peer {
			delete(b.admitted, k)
			b.unload(k, a.size)
		}
	}
}

// skip drops messages that nobody receives, and refuses them from now on.
func (b *inbox) skip(skipped func(k key, bytes int) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skipped = skipped
	for k, payload := range b.held {
		if skipped(k, len(payload)) {
			b.discard(k, len(payload))
		}
	}
	for k, a := range b.admitted {
		if skipped(k, a.size) {
			delete(b.admitted, k)
			b.unload(k, a.size)
		}
	}
	b.changed.wake() // who brings one of them and waits for room
}

// dropActivations drops activations that nobody receives, and refuses them until it is called for another step. Those of earlier steps
// stay: who goes on here in the place of a lost peer gets them again.
func (b *inbox) dropActivations(a activations) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.step < b.dropped.step {
		return
	}
	b.dropped = a
	for k, payload := range b.held {
		if a.contain(k.tag) {
			b.discard(k, len(payload))
		}
	}
	for k, of := range b.admitted {
		if a.contain(k.tag) {
			delete(b.admitted, k)
			b.unload(k, of.size)
		}
	}
	b.changed.wake()
}

// discard drops a message that is held. Callers hold mu.
func (b *inbox) discard(k key, size int) {
	delete(b.held, k)
	delete(b.others, k)
	b.unload(k, size)
}

// unload makes the room of a message free that does not come out. Callers hold mu.
func (b *inbox) unload(k key, size int) {
	used := b.loads[k.account()]
	b.loads[k.account()] = load{used.messages - 1, used.bytes - size}
	b.changed.wake()
}

// replace takes back that a peer is lost: another one sends its messages. From now on nothing counts that it brings itself. It drops
// what a coordinator had sent for the steps that only a later commit begins, and is still held.
func (b *inbox) replace(peer plan.PeerID, coordinates bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replaced[peer] = true
	b.drop(peer)
	delete(b.gone, peer)
	for k, payload := range b.held {
		if coordinates && k.from == peer && k.tag.Step > b.commits[peer].Tag.Step+1 {
			b.discard(k, len(payload))
		}
	}
}

// lastCommit returns the newest commit that came of a peer before it was replaced, nil where none did.
func (b *inbox) lastCommit(peer plan.PeerID) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.commits[peer].Payload
}

// broughtBy returns who brought a message; empty while it has not come as a whole.
func (b *inbox) broughtBy(k key) plan.PeerID {
	b.mu.Lock()
	defer b.mu.Unlock()
	if by, ok := b.others[k]; ok {
		return by
	}
	if _, held := b.held[k]; held || b.received[k] {
		return k.from
	}
	return ""
}

// close fails everybody with err and drops what is held.
func (b *inbox) close(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return
	}
	b.err = err
	for _, ch := range b.waiting {
		ch <- received{err: err}
	}
	clear(b.waiting)
	clear(b.held)
	b.changed.wake()
}
