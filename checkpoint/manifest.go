package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"pnode/pipeline/wire/strict"
	"pnode/planner/plan"
)

const (
	// maxManifestBytes bounds the encoded form: room for about 120,000 chunks (490 GB).
	maxManifestBytes = MaxValueBytes
	maxRunBytes      = 256
	maxPeerBytes     = 256
	maxHolders       = 64
)

// Manifest names the state of every layer after a step. It is a pure value with canonical
// bytes.
type Manifest struct {
	Run        plan.RunID      `json:"run"`
	Step       plan.Step       `json:"step"`
	Generation plan.Generation `json:"generation"`
	// Layers in ascending order of Layer.
	Layers []LayerState `json:"layers"`
	// Own has what replicas with local steps have for themselves, in ascending order of Replica; Layers have what they have in common then.
	Own []OwnState `json:"own,omitempty"`
	// Stream has the micro-batches that are left, in brief: with local steps some of those before may not have been counted.
	Stream plan.Stream `json:"stream,omitzero"`
}

// OwnState is the state of the layers of one replica that the others do not have.
type OwnState struct {
	Replica plan.Replica `json:"replica"`
	// Layers in ascending order of Layer.
	Layers []LayerState `json:"layers"`
}

// filed is the encoded form. A manifest that programs of format 1 would misread says its own.
type filed struct {
	Format int `json:"format,omitempty"`
	Manifest
}

// LayerState is one layer's state (parameters and optimizer moments) as a byte stream.
type LayerState struct {
	Layer     int   `json:"layer"`
	SizeBytes int64 `json:"size_bytes"`
	// Chunks in order, as many as chunks of ChunkBytes would be; see Cut.
	Chunks []plan.Hash `json:"chunks"`
	// Holders are the nodes that keep the chunks; empty means every node that has the
	// manifest.
	Holders []plan.PeerID `json:"holders,omitempty"`
}

// States are the states of all layers, those that replicas have for themselves last.
func (m Manifest) States() []LayerState {
	all := slices.Clone(m.Layers)
	for _, o := range m.Own {
		all = append(all, o.Layers...)
	}
	return all
}

// Hashes are all chunks in order of States, with repetitions if layers share chunks.
func (m Manifest) Hashes() []plan.Hash {
	var all []plan.Hash
	for _, l := range m.States() {
		all = append(all, l.Chunks...)
	}
	return all
}

// Validate checks everything a manifest says about itself; the error wraps ErrCorrupt.
func (m Manifest) Validate() error {
	if m.Run == "" || len(m.Run) > maxRunBytes || !utf8.ValidString(string(m.Run)) {
		return fmt.Errorf("%w: manifest: run of %d bytes, 1 to %d of UTF-8 are accepted", ErrCorrupt, len(m.Run), maxRunBytes)
	}
	if m.Generation == 0 {
		return fmt.Errorf("%w: manifest: generation 0", ErrCorrupt)
	}
	if err := validate(m.Layers); err != nil {
		return fmt.Errorf("%w: manifest: %w", ErrCorrupt, err)
	}
	for i, o := range m.Own {
		if o.Replica < 0 || o.Replica >= plan.MaxLocalReplicas || i > 0 && o.Replica <= m.Own[i-1].Replica {
			return fmt.Errorf("%w: manifest: number %d of the own states is of replica %d", ErrCorrupt, i, o.Replica)
		}
		if err := validate(o.Layers); err != nil {
			return fmt.Errorf("%w: manifest: replica %d: %w", ErrCorrupt, o.Replica, err)
		}
	}
	if err := m.Stream.Validate(); err != nil {
		return fmt.Errorf("%w: manifest: %w", ErrCorrupt, err)
	}
	return nil
}

func validate(layers []LayerState) error {
	last := -1
	for _, l := range layers {
		if l.Layer <= last {
			return fmt.Errorf("layer %d after layer %d", l.Layer, last)
		}
		last = l.Layer
		if err := l.validate(); err != nil {
			return fmt.Errorf("layer %d: %w", l.Layer, err)
		}
	}
	return nil
}

func (l LayerState) validate() error {
	n := int64(len(l.Chunks))
	if l.SizeBytes < 0 || l.SizeBytes > n*ChunkBytes || l.SizeBytes <= (n-1)*ChunkBytes && n > 0 {
		return fmt.Errorf("%d bytes in %d chunks of %d", l.SizeBytes, n, ChunkBytes)
	}
	if len(l.Holders) > maxHolders {
		return fmt.Errorf("%d holders, at most %d are accepted", len(l.Holders), maxHolders)
	}
	for i, p := range l.Holders {
		if p == "" || len(p) > maxPeerBytes || !utf8.ValidString(string(p)) {
			return fmt.Errorf("holder %d has a name of %d bytes, 1 to %d of UTF-8 are accepted", i, len(p), maxPeerBytes)
		}
		if slices.Contains(l.Holders[:i], p) {
			return fmt.Errorf("holder %s twice", p)
		}
	}
	return nil
}

// Encode gives the canonical bytes: the same manifest always gives the same bytes.
func (m Manifest) Encode() []byte {
	f := filed{Manifest: m}
	if len(m.Own) > 0 || m.Stream.Fresh != 0 || len(m.Stream.Given) > 0 {
		f.Format = localFormat
	}
	f.Layers, f.Own = canonical(m.Layers), slices.Clone(m.Own)
	for i, o := range f.Own {
		f.Own[i].Layers = canonical(o.Layers)
	}
	b, err := json.Marshal(f)
	if err != nil {
		panic("checkpoint: manifest does not marshal: " + err.Error()) // only plain values inside
	}
	return b
}

// canonical returns layers with "[]" for no chunks, as decoded ones have.
func canonical(layers []LayerState) []LayerState {
	layers = append([]LayerState{}, layers...)
	for i := range layers {
		if layers[i].Chunks == nil {
			layers[i].Chunks = []plan.Hash{}
		}
	}
	return layers
}

// decodeManifest reads canonical bytes back. It refuses anything else: unknown fields,
// trailing bytes, more than maxManifestBytes, a manifest that is not valid (ErrCorrupt), a newer format
// (ErrVersion).
func decodeManifest(b []byte) (Manifest, error) {
	if len(b) > maxManifestBytes {
		return Manifest{}, fmt.Errorf("%w: manifest of %d bytes, at most %d are accepted", ErrCorrupt, len(b), maxManifestBytes)
	}
	var f format // absent from a manifest of format 1
	if bytes.Contains(b, []byte(`"format"`)) && json.Unmarshal(b, &f) == nil && f.Format > manifestFormat {
		return Manifest{}, newer("the manifest", f.Format, manifestFormat, f.Pnode)
	}
	var read filed
	if err := strict.Decode(b, &read); err != nil {
		return Manifest{}, fmt.Errorf("%w: manifest: %w", ErrCorrupt, err)
	}
	m := read.Manifest
	if err := m.Validate(); err != nil {
		return Manifest{}, err
	}
	if !bytes.Equal(m.Encode(), b) {
		return Manifest{}, fmt.Errorf("%w: manifest is not in canonical form", ErrCorrupt)
	}
	return m, nil
}
