package gossip

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
	"pnode/swarm/topics"
)

// Profile says what a member measured of itself and where it can be reached.
type Profile struct {
	Peer    plan.PeerID  `json:"peer"`
	Epoch   uint64       `json:"boot"` // of the process
	Addrs   []string     `json:"addrs"`
	Profile plan.Profile `json:"profile"`
}

var errBadProfile = errors.New("gossip: bad profile")

func decodeProfile(data []byte) (Profile, error) {
	var p Profile
	if len(data) > topics.MaxBytes {
		return p, fmt.Errorf("%w: %d bytes, at most %d", errBadProfile, len(data), topics.MaxBytes)
	}
	if err := strict.Decode(data, &p); err != nil {
		return p, fmt.Errorf("%w: %w", errBadProfile, err)
	}
	return p, nil
}

// Send publishes this node's own profile.
func (p Profile) Send(ctx context.Context, members Topics) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return members.Publish(ctx, topics.Profiles, data)
}

// ListenToProfiles calls hear for each profile that comes, one after the other. One that speaks
// for another peer than its sender is refused.
func ListenToProfiles(members Topics, hear func(Profile)) error {
	valid := func(from plan.PeerID, data []byte) error {
		p, err := decodeProfile(data)
		if err == nil && p.Peer != from {
			err = fmt.Errorf("%w: it speaks for %.80q", errBadProfile, p.Peer)
		}
		return err
	}
	return members.Subscribe(topics.Profiles, valid, func(_ plan.PeerID, data []byte) {
		if p, err := decodeProfile(data); err == nil {
			hear(p)
		}
	})
}

// Update returns the entry that brings the roster up to date, if it is not.
func (p Profile) Update(s consensus.State) (consensus.Update, bool) {
	m, ok := s.Member(p.Peer)
	if !ok || m.ProcessEpoch != p.Epoch || m.State == consensus.Gone {
		return consensus.Update{}, false
	}
	if reflect.DeepEqual(m.Addrs, p.Addrs) && reflect.DeepEqual(m.Profile, p.Profile) {
		return consensus.Update{}, false
	}
	return consensus.Update{Peer: p.Peer, ProcessEpoch: p.Epoch, Addrs: p.Addrs, Profile: p.Profile}, true
}
