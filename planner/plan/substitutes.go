package plan

import "slices"

// Substitutes returns the peers that could do a lost one's part from the state in their own memory, sorted: each of its
// workers has all of its layers in other replicas, on one worker of theirs. Nobody can where replicas have optimizer state in
// parts, stages keep it off the device, or replicas make local steps, so that their states differ.
func (p Plan) Substitutes(lost PeerID) (peers []PeerID) {
	if !p.Places(lost) || !statesWhole(p) {
		return nil
	}
	for _, peer := range p.Peers() {
		able := func(w WorkerID) bool { return w.Peer != lost || p.Donor(w, peer) != WorkerID{} }
		if peer != lost && !slices.ContainsFunc(p.Workers(), func(w WorkerID) bool { return !able(w) }) {
			peers = append(peers, peer)
		}
	}
	slices.Sort(peers)
	return peers
}

// Replayers returns the peers that could do a lost one's part from the newest checkpoint, sorted: they compute the steps since
// again, from what the others sent and the commits. Nobody can where states are in parts or off the device, or
// replicas make local steps.
func (p Plan) Replayers(lost PeerID) []PeerID {
	if !p.Places(lost) || !statesWhole(p) {
		return nil
	}
	peers := slices.DeleteFunc(slices.Clone(p.Peers()), func(peer PeerID) bool { return peer == lost })
	slices.Sort(peers)
	return peers
}

// statesWhole reports whether each stage has its state as a whole on its device, and all replicas have the same.
func statesWhole(p Plan) bool {
	return p.Local == nil && len(p.Sharded) == 0 && !slices.ContainsFunc(p.placements(), func(at Placement) bool { return at.Offload })
}

// Donor returns the worker of a peer that has all layers of another worker; zero where none has.
func (p Plan) Donor(of WorkerID, peer PeerID) WorkerID {
	for _, w := range p.Workers() {
		lacks := func(h StageID) bool {
			return !slices.ContainsFunc(p.StagesOf(w), func(own StageID) bool {
				all, part := p.At(own).Layers, p.At(h).Layers
				return all.First <= part.First && part.End <= all.End
			})
		}
		if w.Peer == peer && w != of && !slices.ContainsFunc(p.StagesOf(of), lacks) {
			return w
		}
	}
	return WorkerID{}
}
