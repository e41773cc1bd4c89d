package gossip

import (
	"bytes"
	"context"
	"encoding/json"
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

func decodeProfile(data []byte) (Profile, error) {
	var p Profile
	if len(data) > topics.MaxBytes {
		return p, fmt.Errorf("%w: a profile of %d bytes, at most %d", errBadMessage, len(data), topics.MaxBytes)
	}
	if err := strict.Decode(data, &p); err != nil {
		return p, fmt.Errorf("%w: profile: %w", errBadMessage, err)
	}
	if err := consensus.CheckMember(p.Peer, p.Addrs, p.Profile); err != nil {
		return p, fmt.Errorf("%w: profile: %w", errBadMessage, err)
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
	return listen(members, topics.Profiles, decodeProfile, func(p Profile) plan.PeerID { return p.Peer }, hear)
}

// in reports whether the roster has the profile of this process as it is.
func (p Profile) in(s consensus.State) bool {
	m, ok := s.Member(p.Peer)
	if !ok || m.ProcessEpoch != p.Epoch {
		return false
	}
	here, err := json.Marshal(p)
	there, also := json.Marshal(Profile{Peer: m.Peer, Epoch: m.ProcessEpoch, Addrs: m.Addrs, Profile: m.Profile})
	return err == nil && also == nil && bytes.Equal(here, there)
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
