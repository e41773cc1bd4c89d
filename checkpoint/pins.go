package checkpoint

import (
	"fmt"

	"pnode/planner/plan"
)

// maxPinName bounds names of pins in bytes.
const maxPinName = 256

// Pin keeps chunks, present or not yet, from every sweep until Unpin or a Pin of the same
// name, which replaces the list. It is durable: a node that is to hold chunks of others
// pins them before it fetches them.
func (s *Store) Pin(name string, hashes []plan.Hash) error {
	if err := s.users.enter(); err != nil {
		return fmt.Errorf("checkpoint: pin %s: %w", name, err)
	}
	defer s.users.leave()
	value := encodePin(hashes)
	if name == "" || len(name) > maxPinName || len(value) > MaxValueBytes {
		return fmt.Errorf("checkpoint: pin %s: %w: a name of %d bytes and %d chunks, at most %d and %d are accepted",
			name, ErrTooLarge, len(name), len(hashes), maxPinName, MaxValueBytes/len(plan.Hash{}))
	}
	s.guard.hold(hashes...)
	defer s.guard.release(hashes...)
	if err := s.writeIndex([]Op{{Key: pinKey(name), Value: value}}); err != nil {
		return fmt.Errorf("checkpoint: pin %s: %w", name, err)
	}
	return nil
}

// Unpin removes a pin; one that does not exist is no error.
func (s *Store) Unpin(name string) error {
	if err := s.users.enter(); err != nil {
		return fmt.Errorf("checkpoint: unpin %s: %w", name, err)
	}
	defer s.users.leave()
	if err := s.writeIndex([]Op{{Key: pinKey(name), Delete: true}}); err != nil {
		return fmt.Errorf("checkpoint: unpin %s: %w", name, err)
	}
	return nil
}

// Pins are the names of the pins, sorted.
func (s *Store) Pins() ([]string, error) {
	if err := s.users.enter(); err != nil {
		return nil, fmt.Errorf("checkpoint: list pins: %w", err)
	}
	defer s.users.leave()
	pins, err := s.pins()
	var names []string
	for _, p := range pins {
		names = append(names, p.name)
	}
	return names, err
}

type pin struct {
	name   string
	hashes []plan.Hash
}

func (s *Store) pins() ([]pin, error) {
	var pins []pin
	err := s.index.walk([]byte{pinKeys}, nil, false, func(key []byte, value func() ([]byte, error)) (bool, error) {
		p := pin{name: string(key[1:])}
		b, err := value()
		if err == nil {
			p.hashes, err = decodePin(b)
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", p.name, err)
		}
		pins = append(pins, p)
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("checkpoint: list pins: %w", err)
	}
	return pins, nil
}

func pinKey(name string) []byte { return append([]byte{pinKeys}, name...) }

func encodePin(hashes []plan.Hash) []byte {
	b := make([]byte, 0, len(hashes)*len(plan.Hash{}))
	for _, h := range hashes {
		b = append(b, h[:]...)
	}
	return b
}

func decodePin(b []byte) ([]plan.Hash, error) {
	var h plan.Hash
	if len(b)%len(h) != 0 {
		return nil, fmt.Errorf("%w: pin of %d bytes", ErrCorrupt, len(b))
	}
	hashes := make([]plan.Hash, 0, len(b)/len(h))
	for ; len(b) > 0; b = b[len(h):] {
		hashes = append(hashes, plan.Hash(b[:len(h)]))
	}
	return hashes, nil
}
