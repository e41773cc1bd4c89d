package generation

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline"
	"pnode/pipeline/wire"
	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// commitTimeout bounds the question for one commit.
const commitTimeout = 2 * time.Second

const (
	// protocolCommit asks for the commit of a step: a commitRequest, answered with a wire.Commit.
	protocolCommit = "/pnode/commit/1"
	// protocolLastCommit asks what the newest commit is that came of a lost coordinator: a lastCommitRequest of its substitute, answered
	// with a wire.Commit, or nothing where none came.
	protocolLastCommit = "/pnode/lastcommit/1"
)

type commitRequest struct {
	Generation plan.Generation `json:"generation"`
	Step       plan.Step       `json:"step"`
}

type lastCommitRequest struct {
	Generation plan.Generation `json:"generation"`
}

// ServeCommits answers other members' questions for commits from now on, those that no generation runs for included.
func ServeCommits(peers Peers, commits *pipeline.Commits, state func() consensus.State) {
	s := served{commits, state}
	peers.Serve(protocolCommit, s.commit)
	peers.Serve(protocolLastCommit, s.lastCommit)
}

// served answers questions for commits.
type served struct {
	commits *pipeline.Commits
	state   func() consensus.State
}

// commit answers a commitRequest.
func (s served) commit(_ context.Context, _ plan.PeerID, request []byte) ([]byte, error) {
	var q commitRequest
	if err := strict.Decode(request, &q); err != nil {
		return nil, fmt.Errorf("generation: commit request: %w", err)
	}
	g, commit, ok := s.commits.At(q.Step)
	if !ok || g != q.Generation {
		return nil, fmt.Errorf("generation: no commit of generation %d step %d here", q.Generation, q.Step)
	}
	return wire.AppendCommit(nil, commit), nil
}

// lastCommit answers a lastCommitRequest. It waits until this node takes nothing from the lost coordinator any more.
func (s served) lastCommit(ctx context.Context, from plan.PeerID, request []byte) ([]byte, error) {
	var q lastCommitRequest
	if err := strict.Decode(request, &q); err != nil {
		return nil, fmt.Errorf("generation: last commit request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, substitutePatience)
	defer cancel()
	last, err := s.commits.Settled(ctx, q.Generation)
	if s := s.state(); err == nil && (s.Plan.Generation != q.Generation || s.Substitute.Coordinator(s.Plan) != from) {
		err = fmt.Errorf("%s does not coordinate generation %d", s.NameOf(from), q.Generation)
	}
	if err != nil {
		return nil, fmt.Errorf("generation: last commit request: %w", err)
	}
	return last, nil
}

// askCommit asks a member for the commit of a step.
func (p Parts) askCommit(ctx context.Context, peer plan.PeerID, q commitRequest) (wire.Commit, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	answer, err := p.Peers.Ask(ctx, peer, protocolCommit, q)
	if err != nil {
		return wire.Commit{}, err
	}
	return wire.DecodeCommit(answer)
}

// newestCommit is the newest commit of a lost coordinator that some member of the plan has, and who says so; zero where nobody has any.
type newestCommit struct {
	step   plan.Step // of the commit; of the one after the run's last update, which names none, the step after that
	commit wire.Commit
	by     plan.PeerID
}

// newestOf returns the newest one of peers' commits, which are encoded and empty where somebody has none.
func newestOf(state consensus.State, peers []plan.PeerID, commits [][]byte) (newest newestCommit, err error) {
	for i, encoded := range commits {
		if len(encoded) == 0 {
			continue
		}
		commit, err := wire.DecodeCommit(encoded)
		if err != nil {
			return newestCommit{}, fmt.Errorf("generation: the newest commit, from %s: %w", state.NameOf(peers[i]), err)
		}
		step := commit.Step
		if step == 0 {
			step = state.Run.Train.Steps + 1
		}
		switch {
		case step == newest.step && !bytes.Equal(encoded, wire.AppendCommit(nil, newest.commit)):
			return newestCommit{}, fmt.Errorf("generation: %s and %s have other commits of step %d", state.NameOf(newest.by), state.NameOf(peers[i]), step)
		case step > newest.step:
			newest = newestCommit{step, commit, peers[i]}
		}
	}
	return newest, nil
}

// committedBefore returns what a lost worker may have committed. Where it was the coordinator all members of the plan are asked, each of which
// answers once it takes nothing of the lost one any more.
func (s standIn) committedBefore(ctx context.Context, id plan.WorkerID) (newestCommit, error) {
	if id != s.plan.Coordinator() {
		return newestCommit{}, nil
	}
	peers := slices.DeleteFunc(s.plan.Peers(), func(p plan.PeerID) bool { return p == s.of.Lost || p == s.Self })
	peers = append(peers, s.Self) // the last: others that have as much can be asked for what came before it
	answers := make([][]byte, len(peers))
	group, asking := errgroup.WithContext(ctx)
	for i, peer := range peers {
		group.Go(func() (err error) {
			if peer == s.Self {
				answers[i] = s.session.LastCommit(s.of.Lost)
				return nil
			}
			asking, cancel := context.WithTimeout(asking, substitutePatience)
			defer cancel()
			answers[i], err = s.Peers.Ask(asking, peer, protocolLastCommit, lastCommitRequest{s.plan.Generation})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return newestCommit{}, fmt.Errorf("generation: the newest commit: %w", err)
	}
	return newestOf(s.state, peers, answers)
}
