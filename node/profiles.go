package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/topics"
)

// profileEvery is how often a member gossips what it measured and where it can be reached.
// Addresses change while it lives: a NAT's mapping is found out, a relay is won or lost.
const profileEvery = 30 * time.Second

// profileNews is the gossip of a member about itself.
type profileNews struct {
	Peer    plan.PeerID  `json:"peer"`
	Boot    uint64       `json:"boot"`
	Addrs   []string     `json:"addrs"`
	Profile plan.Profile `json:"profile"`
}

var errBadProfile = errors.New("node: bad profile")

func decodeProfileNews(data []byte) (profileNews, error) {
	var p profileNews
	if len(data) > topics.MaxBytes {
		return p, fmt.Errorf("%w: %d bytes, at most %d", errBadProfile, len(data), topics.MaxBytes)
	}
	if err := strict.Decode(data, &p); err != nil {
		return p, fmt.Errorf("%w: %w", errBadProfile, err)
	}
	return p, nil
}

// gossipProfiles tells the others about this node until ctx ends, and keeps what it tells true.
func (n *Node) gossipProfiles(ctx context.Context) {
	tick := time.NewTicker(profileEvery)
	defer tick.Stop()
	for {
		n.probeLinks(ctx, laterProbes)
		n.tellProfile(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if n.raft.State().Plan.Places(n.self) {
				continue
			}
			if _, err := n.hardware.Measure(); err != nil {
				n.log.Debug("measure again", "cause", err)
			}
		}
	}
}

// tellProfile tells the others once.
func (n *Node) tellProfile(ctx context.Context) {
	data, err := json.Marshal(profileNews{Peer: n.self, Boot: n.boot, Addrs: n.addrs(), Profile: n.hardware.Profile()})
	if err == nil {
		err = n.swarm.Topics().Publish(ctx, topics.Profiles, data)
	}
	if err != nil && ctx.Err() == nil {
		n.log.Debug("gossip the profile", "cause", err)
	}
}

// listenToProfiles lets the planner bring news of members into the roster.
func (n *Node) listenToProfiles() error {
	valid := func(from plan.PeerID, data []byte) error {
		p, err := decodeProfileNews(data)
		if err == nil && p.Peer != from {
			err = fmt.Errorf("%w: it speaks for %.80q", errBadProfile, p.Peer)
		}
		return err
	}
	return n.swarm.Topics().Subscribe(topics.Profiles, valid, func(_ plan.PeerID, data []byte) {
		p, err := decodeProfileNews(data)
		if err != nil {
			return
		}
		if update, ok := p.update(n.raft.State()); ok && n.leads() {
			ctx, cancel := context.WithTimeout(n.base, proposeTimeout)
			defer cancel()
			if err := n.raft.Propose(ctx, update); err != nil {
				n.log.Debug("take over a profile", "of", p.Peer, "cause", err)
			}
		}
	})
}

func (n *Node) leads() bool {
	_, _, self := n.raft.Leader()
	return self
}

// update is the entry that brings the roster up to date, if it is not.
func (p profileNews) update(s consensus.State) (consensus.Update, bool) {
	m, ok := s.Member(p.Peer)
	if !ok || m.Boot != p.Boot || m.State == consensus.Gone {
		return consensus.Update{}, false
	}
	if reflect.DeepEqual(m.Addrs, p.Addrs) && reflect.DeepEqual(m.Profile, p.Profile) {
		return consensus.Update{}, false
	}
	return consensus.Update{Peer: p.Peer, Boot: p.Boot, Addrs: p.Addrs, Profile: p.Profile}, true
}
