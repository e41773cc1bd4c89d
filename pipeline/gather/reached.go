package gather

import "pnode/pipeline/model"

// reached reads what a worker's inner steps have come to since it has offered what its replica had learned.
type reached struct {
	model model.Config
	read  func(layer int, params []float32) error // nil: no such steps count
	head  []float32                               // parameters of the last layer, where they were read ahead
}

// reached begins to read layers, before any is written: both ends of a tied embedding may be the same memory here, so that the second one is read ahead.
func (g *Gatherer) reached(read func(layer int, params []float32) error) (s reached, err error) {
	s = reached{model: g.Run.Model, read: read}
	if embed, head, layer := g.ends(); s.model.TiedGradLen() > 0 && embed.Worker() == g.Worker && head.Worker() == g.Worker {
		s.head, err = s.layer(layer)
	}
	return s, err
}

// layer returns the trained parameters of a layer; nil where no inner steps count.
func (s reached) layer(layer int) ([]float32, error) {
	switch {
	case s.read == nil:
		return nil, nil
	case s.head != nil && layer == s.model.Layers()-1:
		return s.head, nil
	}
	params := make([]float32, s.model.TrainedLen(layer))
	return params, s.read(layer, params)
}
