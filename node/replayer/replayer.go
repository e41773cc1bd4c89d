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
	"pnode/swarm/consensus"
)

// Config holds what a Replayer works with. All fields are needed.
type Config struct {
	Self  plan.PeerID
	Peers Peers
	// Fetch brings chunks from a peer, as link.Endpoint does.
	Fetch func(ctx context.Context, from plan.PeerID, hashes []plan.Hash, store func(plan.Hash, []byte) error) error
	Log   consensus.Log
	// Replays reports whether the log has a member replay workers of a generation.
	Replays func(s consensus.State, by plan.PeerID, g plan.Generation) bool
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

	logs *replay.Logs

	mu         sync.Mutex // guards the rest
	generation plan.Generation
	failed     bool
	// answers are the newest ones to each member, whose chunks are still to be fetched; the newest are the last.
	answers []answered
	// waiting counts the requests of each peer that wait for the log.
	waiting map[plan.PeerID]int
}

const (
	protocolSent = "/pnode/sent/1"
	// chunkBytes is how much of a step's messages one chunk has.
	chunkBytes = wire.MaxChunkBytes
	// maxChunks bounds an answer.
	maxChunks = 8 << 10
	// newestAnswers of each member are kept: a replay fetches one step while it computes the one before. The answers of all are as many as
	// mostReplayers need.
	newestAnswers = 3
	mostReplayers = 4
	// maxLost bounds the peers of one request.
	maxLost = 1 << 10
	// logPatience bounds the wait for what another node has read of the log already: on a slow disk some entries may have to be written
	// first. So many requests of one peer wait at most.
	logPatience = time.Minute
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
	r := &Replayer{cfg: c, logs: replay.NewLogs(c.Self), waiting: map[plan.PeerID]int{}}
	c.Peers.Serve(protocolSent, r.serve)
	return r
}

// Begin returns the log for the messages of a plan's workers here. Those of the generations that made the checkpoints of line stay until
// Forget: who alone has a layer of one may be lost. All others are dropped.
func (r *Replayer) Begin(p plan.Plan, line []consensus.Checkpoint) *replay.Log {
	budget := r.cfg.Budget()
	var made []plan.Generation
	for _, c := range line[:max(0, len(line)-1)] { // nothing begins before the last
		made = append(made, c.Generation)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation, r.failed, r.answers = p.Generation, false, nil
	return r.logs.Begin(p.Generation, p.Start, budget, made...)
}

// answered holds the chunks of an answer to a member.
type answered struct {
	to     plan.PeerID
	chunks map[plan.Hash][]byte
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
	if r.generation == 0 {
		return Kept{}
	}
	return Kept{r.generation, r.logs.Of(r.generation).First(), r.failed}
}

// Since returns the first step of which all messages are kept, of the newest generation and those before it.
func (r *Replayer) Since() plan.Step { return r.logs.First() }

// Fail notes that this node could not replay another's workers of the generation.
func (r *Replayer) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

// Forget drops the messages of the steps before one that is in a checkpoint. That step's own stay: of unlike replicas a member may lack
// its commit, and go on in a lost one's place from the state before it.
func (r *Replayer) Forget(checkpoint plan.Step) { r.logs.Forget(checkpoint) }

// Chunk returns a chunk of messages that an answer has named.
func (r *Replayer) Chunk(h plan.Hash) ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.answers {
		if data, ok := a.chunks[h]; ok {
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
	r.keep(answered{from, chunks})
	return json.Marshal(a)
}

// keep keeps an answer until newer ones take its place: those to the same member, so that no member takes another's. Callers hold mu.
func (r *Replayer) keep(newest answered) {
	same := 0
	for i := len(r.answers) - 1; i >= 0; i-- {
		if r.answers[i].to != newest.to {
			continue
		}
		if same++; same == newestAnswers {
			r.answers = slices.Delete(r.answers, i, i+1)
			break
		}
	}
	r.answers = append(r.answers, newest)
	r.answers = slices.Delete(r.answers, 0, max(0, len(r.answers)-newestAnswers*mostReplayers))
}

// allowed reports whether the log has a member replay workers of a generation. The member may have read more of the log than this node,
// which is waited for where it asks for what is kept here.
func (r *Replayer) allowed(ctx context.Context, by plan.PeerID, g plan.Generation) bool {
	replays := func(s consensus.State) bool { return r.cfg.Replays(s, by, g) }
	if replays(r.cfg.Log.State()) {
		return true
	}
	r.mu.Lock()
	waits := r.logs.Of(g) != nil && r.waiting[by] < maxWaiting
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
	return consensus.Await(ctx, r.cfg.Log, replays) == nil
}

// sent returns the messages that a request names.
func (r *Replayer) sent(q Request) ([]replay.Message, error) {
	log := r.logs.Of(q.Generation)
	if log == nil {
		return nil, fmt.Errorf("%w: generation %d", replay.ErrNotKept, q.Generation)
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
