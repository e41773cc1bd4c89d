package gather

import (
	"pnode/pipeline/collective"
	"pnode/pipeline/compress"
	"pnode/pipeline/meeting"
	"pnode/pipeline/model"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// pieceBytes bounds a message on its way, since a layer's may be more than a link takes: an embedding is.
const pieceBytes = wire.MaxTensorBytes / 8

// index returns what collective.LayerOf reads: a layer, the receiving replica and the number of the piece. A replica sends itself the mean of
// the embedding, for the other end of a tied one.
func index(layer int, receiver plan.Replica, piece int) int32 {
	return int32(layer + int(receiver)<<11 + piece<<21)
}

// piece returns the bytes [first,end) of a message that are in a piece of it, in pieces of so many bytes; none after the last piece.
func piece(number, bytes, size int) (first, end int) {
	return min(number*size, bytes), min((number+1)*size, bytes)
}

// pieces counts those of a message of so many bytes, in pieces of so many.
func pieces(bytes, size int) int { return (bytes + size - 1) / size }

// stageOf returns the stage of a replica that has a layer.
func stageOf(p plan.Plan, r plan.Replica, layer int) plan.Stage {
	for s, place := range p.Replicas[r].Stages {
		if place.Layers.Contains(layer) {
			return plan.Stage(s)
		}
	}
	return -1
}

// sent counts the layers of a stage that have messages.
func sent(cfg model.Config, codec compress.Codec, layers plan.LayerRange) (n int) {
	for l := layers.First; l < layers.End; l++ {
		if meeting.MessageBytes(cfg, codec, l) > 0 {
			n++
		}
	}
	return n
}

// Nothing stands for a message that nobody sends: it is less than any has.
const Nothing = -1

// Most returns how many bytes a peer's message of a round may have that a local plan has it send to another; Nothing where there is no such message.
func Most(run plan.RunSpec, p plan.Plan, from, to plan.PeerID, t wire.Tag) int {
	codec, err := compress.Parse(p.Local.Codec)
	if err != nil || t.Replica < 0 || int(t.Replica) >= len(p.Replicas) || t.Stage < 0 || int(t.Stage) >= len(p.Replicas[t.Replica].Stages) || t.Index < 0 {
		return Nothing
	}
	sender, own := p.Replicas[t.Replica].Stages[t.Stage], plan.CoordinatorOf(p, t.Replica)
	if sender.Peer != from {
		return Nothing
	}
	switch t.Kind {
	case wire.OuterGrad:
		layer, receiver, number := collective.LayerOf(t)
		if receiver >= len(p.Replicas) || layer >= run.Model.Layers() {
			return Nothing
		}
		bytes, has := meeting.MessageBytes(run.Model, codec, layer), sender.Layers.Contains(layer)
		if plan.Replica(receiver) == t.Replica {
			bytes, has = 4*run.Model.TiedGradLen(), t.Stage == 0 && layer == run.Model.Layers()-1
		}
		at := stageOf(p, plan.Replica(receiver), layer)
		first, end := piece(number, bytes, pieceBytes)
		if !has || bytes == 0 || at < 0 || p.Replicas[receiver].Stages[at].Peer != to {
			return Nothing
		}
		switch {
		case first < end:
			return end - first
		case number == pieces(bytes, pieceBytes) && plan.Replica(receiver) != t.Replica:
			return wire.SealBytes
		}
	case wire.KindOuterReport:
		other := plan.Replica(t.Index)
		if sender.Worker() == own && other != t.Replica && int(other) < len(p.Replicas) && plan.CoordinatorOf(p, other).Peer == to {
			return wire.OuterReportBytes(p.Local.Every) + wire.SealBytes
		}
	case wire.OuterHave:
		if int(t.Index) < len(p.Replicas) && own.Peer == to {
			return wire.OuterHaveBytes(sent(run.Model, codec, sender.Layers))
		}
	}
	return Nothing
}
