package tokenizer

import "bytes"

// added are the tokens that are found in text before anything else happens to it.
type added struct {
	// rounds are looked for one after the other, the second in what the first leaves.
	rounds  [2]matcher
	special map[string]int32
}

// addedToken is one of them.
type addedToken struct {
	text    []byte
	token   int32
	special bool
}

// each cuts text at added tokens and calls part for what lies between them, with token -1,
// and for each token. Special ones count only on request. first tells that text begins at
// the beginning.
func (a *added) each(text []byte, special bool, part func(text []byte, token int32, first bool)) {
	whole := true
	a.rounds[0].each(text, special, func(outer []byte, token int32) {
		if token >= 0 {
			part(nil, token, false)
		} else {
			a.rounds[1].each(outer, special, func(inner []byte, token int32) {
				part(inner, token, whole)
				whole = false
			})
		}
		whole = false
	})
}

// matcher finds the leftmost, of those the longest token.
type matcher struct {
	byFirst  [256][]addedToken // by first byte, longest first
	some     bool
	ordinary bool // some are not special
}

func (m *matcher) each(text []byte, special bool, part func(text []byte, token int32)) {
	start := 0
	if m.ordinary || special && m.some {
		for i := 0; i < len(text); {
			found := m.at(text[i:])
			if found == nil {
				i++
				continue
			}
			end := i + len(found.text)
			if special || !found.special {
				if i > start {
					part(text[start:i], -1)
				}
				part(nil, found.token)
				start = end
			}
			i = end
		}
	}
	if start < len(text) {
		part(text[start:], -1)
	}
}

// at is the longest token at the front of text.
func (m *matcher) at(text []byte) *addedToken {
	candidates := m.byFirst[text[0]]
	for i := range candidates {
		if bytes.HasPrefix(text, candidates[i].text) {
			return &candidates[i]
		}
	}
	return nil
}
