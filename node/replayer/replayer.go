package replayer

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"pnode/pipeline/replay"
	"pnode/pipeline/wire"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
)

// Config holds what a Replayer works with. All fields are needed.
type Config struct {
	Self  plan.PeerID
	Peers Peers
	// Fetch brings chunks from a peer, as link.Endpoint does.
	Fetch func(ctx context.Context, from plan.PeerID, hashes []plan.Hash, store func(plan.Hash, []byte) error) error
	// Replays reports whether the log has a member replay workers of a generation. The channel of Changed is closed when the log has more.
	Replays func(by plan.PeerID, g plan.Generation) bool
	Changed func() <-chan struct{}
	// Budget returns how many bytes of messages may be kept, when a generation begins.
	Budget func() int64
}

// Peers exchanges requests with the members of the run.
type Peers interface {
	// Ask sends request as JSON and returns the answer.
	Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error)
	// Serve answers the requests of a protocol from now on.
	Serve(protocol string, answer func(ctx context.Context, from plan.PeerID, request []byte) ([]byte, error))
}

// Replayer keeps messages for others and gets theirs. Its methods may be called concurrently.
type Replayer struct {
	cfg Config

	mu         sync.Mutex // guards the rest
	generation plan.Generation
	log        *replay.Log
	failed     bool
	// before is the log of the generation that made the checkpoint which the newest one began with, at step start, until that is held
	// twice. Its bytes are part of the newest one's budget.
	before      *replay.Log
	made        plan.Generation
	start       plan.Step
	beforeBytes int64
	// answers are the newest ones, whose chunks are still to be fetched.
	answers []map[plan.Hash][]byte
	// waiting counts the requests of each peer that wait for the log.
	waiting map[plan.PeerID]int
}

const (
	protocolSent = "/pnode/sent/1"
	// chunkBytes is how much of a step's messages one chunk has.
	chunkBytes = wire.MaxChunkBytes
	// maxChunks bounds an answer.
	maxChunks = 8 << 10
	// newestAnswers are kept: a replay fetches one step while it computes the one before.
	newestAnswers = 3
	// maxLost bounds the peers of one request.
	maxLost = 1 << 10
	// logPatience bounds the wait for what another node has read of the log already. So many requests of one peer wait at most.
	logPatience = 2 * time.Second
	maxWaiting  = 4
)

var (
	errBadRequest = errors.New("replayer: bad request for messages")
	errBadAnswer  = errors.New("replayer: bad answer to a request for messages")
)

// Request asks for what the asked node sent to lost peers in one step.
type Request struct {
	Generation plan.Generation `json:"generation"`
	Step       plan.Step       `json:"step"`
	Lost       []plan.PeerID   `json:"lost"`
}

// answer names the chunks of the messages, one after the other.
type answer struct {
	Chunks []plan.Hash `json:"chunks"`
}

// New returns a Replayer that answers requests from now on.
func New(c Config) *Replayer {
	r := &Replayer{cfg: c, waiting: map[plan.PeerID]int{}}
	c.Peers.Serve(protocolSent, r.serve)
	return r
}

// Begin returns the log for the messages of a generation's workers here. Those of the generation that made the checkpoint it begins with
// stay until Forget: who alone has that may be lost. All others are dropped.
func (r *Replayer) Begin(p plan.Plan, made plan.Generation) *replay.Log {
	budget := r.cfg.Budget()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.log != nil && r.generation == made:
		r.before, r.made, r.beforeBytes = r.log, made, r.log.Bytes()
	case r.made != made:
		r.before, r.beforeBytes = nil, 0
	}
	r.start = p.Start
	log := replay.NewLog(r.cfg.Self, p.Start, max(0, budget-r.beforeBytes))
	r.generation, r.log, r.failed, r.answers = p.Generation, log, false, nil
	return log
}

// Kept says what this node has for replays of a generation's workers.
type Kept struct {
	Generation plan.Generation
	// First is the first step of which all messages are kept.
	First plan.Step
	// Failed says that this node could not replay another's workers.
	Failed bool
}

// Kept returns what is kept of the newest generation; zero before the first.
func (r *Replayer) Kept() Kept {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.log == nil {
		return Kept{}
	}
	return Kept{r.generation, r.log.First(), r.failed}
}

// Fail notes that this node could not replay another's workers of the generation.
func (r *Replayer) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

// Forget drops the messages of the steps before one that is in a checkpoint. That step's own stay: of unlike replicas a member may lack
// its commit, and go on in a lost one's place from the state before it.
func (r *Replayer) Forget(checkpoint plan.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.log == nil || checkpoint == 0 {
		return
	}
	r.log.Forget(checkpoint - 1)
	if r.before != nil && checkpoint >= r.start {
		r.log.Grow(r.beforeBytes)
		r.before, r.beforeBytes = nil, 0
	}
}

// Chunk returns a chunk of messages that an answer has named.
func (r *Replayer) Chunk(h plan.Hash) ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, chunks := range r.answers {
		if data, ok := chunks[h]; ok {
			return data, true
		}
	}
	return nil, false
}

// serve answers a Request of the member that replays.
func (r *Replayer) serve(ctx context.Context, from plan.PeerID, data []byte) ([]byte, error) {
	q, err := decodeRequest(data)
	if err != nil {
		return nil, err
	}
	if !r.allowed(ctx, from, q.Generation) {
		return nil, fmt.Errorf("%w: the log has %s replay nothing of generation %d", errBadRequest, from.Short(), q.Generation)
	}
	messages, err := r.sent(q)
	if err != nil {
		return nil, err
	}
	a, chunks := answer{Chunks: []plan.Hash{}}, map[plan.Hash][]byte{}
	for chunk := range slices.Chunk(replay.AppendMessages(nil, messages), chunkBytes) {
		h := plan.Hash(sha256.Sum256(chunk))
		a.Chunks = append(a.Chunks, h)
		chunks[h] = chunk
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, chunks)
	r.answers = r.answers[max(0, len(r.answers)-newestAnswers):]
	return json.Marshal(a)
}

// allowed reports whether the log has a member replay workers of a generation. The member may have read more of the log than this node,
// which is waited for where it asks for what is kept here.
func (r *Replayer) allowed(ctx context.Context, by plan.PeerID, g plan.Generation) bool {
	if r.cfg.Replays(by, g) {
		return true
	}
	r.mu.Lock()
	kept := r.log != nil && g == r.generation || r.before != nil && g == r.made
	waits := kept && r.waiting[by] < maxWaiting
	if waits {
		r.waiting[by]++
	}
	r.mu.Unlock()
	if !waits {
		return false
	}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.waiting[by]--; r.waiting[by] == 0 {
			delete(r.waiting, by)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	for {
		changed := r.cfg.Changed()
		if r.cfg.Replays(by, g) {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// sent returns the messages that a request names.
func (r *Replayer) sent(q Request) ([]replay.Message, error) {
	r.mu.Lock()
	log, generation := r.log, r.generation
	if r.before != nil && q.Generation == r.made {
		log, generation = r.before, r.made
	}
	r.mu.Unlock()
	if log == nil || generation != q.Generation {
		return nil, fmt.Errorf("%w: generation %d, here is generation %d", replay.ErrNotKept, q.Generation, generation)
	}
	messages, kept := log.Sent(q.Step, q.Lost)
	if !kept {
		return nil, fmt.Errorf("%w: step %d, here from step %d on", replay.ErrNotKept, q.Step, log.First())
	}
	return messages, nil
}

func decodeRequest(data []byte) (Request, error) {
	var q Request
	if err := strict.Decode(data, &q); err != nil {
		return q, fmt.Errorf("%w: %w", errBadRequest, err)
	}
	if len(q.Lost) == 0 || len(q.Lost) > maxLost {
		return q, fmt.Errorf("%w: of %d lost peers, 1 to %d are accepted", errBadRequest, len(q.Lost), maxLost)
	}
	return q, nil
}

// Messages returns what a living peer sent to lost ones in a step of a generation. It has the shape of replay.Source
// once the generation and the lost are given.
func (r *Replayer) Messages(ctx context.Context, from plan.PeerID, q Request) ([]replay.Message, error) {
	if from == r.cfg.Self {
		return r.sent(q)
	}
	reply, err := r.cfg.Peers.Ask(ctx, from, protocolSent, q)
	if err != nil {
		return nil, err
	}
	a, err := decodeAnswer(reply)
	if err != nil || len(a.Chunks) == 0 {
		return nil, err
	}
	// Others have about as much room as this node. More is not fetched into memory on their word.
	if most := r.cfg.Budget(); int64(len(a.Chunks)-1)*chunkBytes > most {
		return nil, fmt.Errorf("%w: %d chunks, there is room for %d bytes here", errBadAnswer, len(a.Chunks), most)
	}
	chunks := map[plan.Hash][]byte{}
	err = r.cfg.Fetch(ctx, from, a.Chunks, func(h plan.Hash, data []byte) error {
		if plan.Hash(sha256.Sum256(data)) != h {
			return fmt.Errorf("%w: chunk %v has other bytes", errBadAnswer, h)
		}
		chunks[h] = data
		return nil
	})
	if err != nil {
		return nil, err
	}
	var whole []byte
	for _, h := range a.Chunks { // equal ones came once
		whole = append(whole, chunks[h]...)
	}
	return replay.DecodeMessages(whole, q.Generation, q.Step, q.Lost)
}

func decodeAnswer(data []byte) (answer, error) {
	var a answer
	if err := strict.Decode(data, &a); err != nil {
		return a, fmt.Errorf("%w: %w", errBadAnswer, err)
	}
	if len(a.Chunks) > maxChunks {
		return a, fmt.Errorf("%w: %d chunks, at most %d are accepted", errBadAnswer, len(a.Chunks), maxChunks)
	}
	return a, nil
}
