package meeting

import (
	"pnode/pipeline/compress"
	"pnode/pipeline/model"
)

// tensor is a stretch of a layer's trained elements that is in messages.
type tensor struct {
	number int // of the layer
	first  int // element of the trained ones
	len    int
}

// tensorsOf returns what the messages of a layer have. The head's copy of a tied embedding is not there.
func tensorsOf(cfg model.Config, layer int) (sent []tensor) {
	end := cfg.LayerLen(layer)
	if layer == cfg.Layers()-1 {
		end -= cfg.TiedGradLen()
	}
	for i, t := range cfg.LayerTensors(layer) {
		if !t.Frozen && t.Off < end {
			sent = append(sent, tensor{i, t.Off - cfg.FrozenLen(layer), t.Len()})
		}
	}
	return sent
}

// MessageBytes returns the size of a layer's message in a codec; 0 where nothing of the layer is trained.
func MessageBytes(cfg model.Config, codec compress.Codec, layer int) (n int) {
	for _, t := range tensorsOf(cfg, layer) {
		n += codec.Bytes(t.len)
	}
	return n
}
