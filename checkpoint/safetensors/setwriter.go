package safetensors

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// SetWriter makes `base.safetensors`, or shards with an index when the tensors need more
// than one file.
type SetWriter struct {
	dir, base string
	shards    []*Writer
	owner     map[string]*Writer
	index     []byte // nil: one file
}

// Layout says how a set is written.
type Layout struct {
	Dir, Base string
	// MaxShardBytes of tensors go into one file; 0 means no limit. A tensor larger than
	// that has a file of its own.
	MaxShardBytes int64
	Metadata      map[string]string
}

// CreateSet begins a set. Tensors go into shards in the given order. Commit or Discard
// must follow.
func CreateSet(tensors []Tensor, l Layout) (*SetWriter, error) {
	groups, total, err := split(tensors, l.MaxShardBytes)
	if err != nil {
		return nil, err
	}
	s := &SetWriter{dir: l.Dir, base: l.Base, owner: map[string]*Writer{}}
	weights := map[string]string{}
	for i, group := range groups {
		name := l.Base + ".safetensors"
		if len(groups) > 1 {
			name = fmt.Sprintf("%s-%05d-of-%05d.safetensors", l.Base, i+1, len(groups))
		}
		w, err := Create(filepath.Join(l.Dir, name), group, l.Metadata)
		if err != nil {
			return nil, errors.Join(err, s.Discard())
		}
		s.shards = append(s.shards, w)
		for _, t := range group {
			if s.owner[t.Name] != nil && s.owner[t.Name] != w {
				return nil, errors.Join(fmt.Errorf("safetensors: the name %q is used twice", t.Name), s.Discard())
			}
			s.owner[t.Name], weights[t.Name] = w, name
		}
	}
	if len(groups) > 1 {
		s.index, err = marshalIndent(struct {
			Metadata  map[string]int64  `json:"metadata"`
			WeightMap map[string]string `json:"weight_map"`
		}{map[string]int64{"total_size": total}, weights})
	}
	return s, err
}

// split groups the tensors by size; there is always one group.
func split(tensors []Tensor, limit int64) (groups [][]Tensor, total int64, err error) {
	var group []Tensor
	var used int64
	for _, t := range tensors {
		size, err := t.sizeBytes()
		if err != nil {
			return nil, 0, err
		}
		if limit > 0 && used > 0 && used+size > limit {
			groups, group, used = append(groups, group), nil, 0
		}
		group = append(group, t)
		used += size
		total += size
	}
	return append(groups, group), total, nil
}

// Append adds elements to a tensor of whichever file holds it, like Writer.Append.
func (s *SetWriter) Append(name string, values []float32) error {
	w, ok := s.owner[name]
	if !ok {
		return fmt.Errorf("safetensors: write %s: %w: %q", s.dir, ErrNoTensor, name)
	}
	return w.Append(name, values)
}

// Commit gives all files their names once all are complete and on disk, the index last.
// It fails with ErrIncomplete, and discards the set, when a tensor is not full.
func (s *SetWriter) Commit() error {
	for _, w := range s.shards {
		if err := w.finish(); err != nil {
			return errors.Join(err, s.Discard())
		}
	}
	for i, w := range s.shards {
		if err := w.rename(); err != nil {
			s.shards = s.shards[i+1:]
			return errors.Join(err, s.Discard())
		}
	}
	if s.index == nil {
		return nil
	}
	if err := os.WriteFile(filepath.Join(s.dir, indexName(s.base)), s.index, 0o644); err != nil {
		return fmt.Errorf("safetensors: write index: %w", err)
	}
	return nil
}

// Discard gives the set up.
func (s *SetWriter) Discard() error {
	var errs []error
	for _, w := range s.shards {
		errs = append(errs, w.Discard())
	}
	return errors.Join(errs...)
}
