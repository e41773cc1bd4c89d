package tokenizer

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxVocab bounds what a file can make this package allocate beyond its own size.
const maxVocab = 1 << 20

// build puts a tokenizer together and checks that no text can fall through it.
func build(m modelJSON, addedTokens []addedJSON, r recipe) (*BPE, error) {
	if err := r.check(m); err != nil {
		return nil, err
	}
	t := &BPE{splitter: splitter{r.split, classOf()}, spacing: r.spacing, normalize: r.nfc}
	if err := t.setTokens(m, addedTokens, r); err != nil {
		return nil, err
	}
	if err := t.setAlphabet(m.Vocab, r.bytes); err != nil {
		return nil, err
	}
	t.merges = make(map[pair]merge, len(m.Merges))
	crosses := false                    // whether a merge makes a token that has U+2581 after another character
	for rank, parts := range m.Merges { // of two for the same pair the later counts, as in the reference
		left, okLeft := m.Vocab[parts[0]]
		right, okRight := m.Vocab[parts[1]]
		whole, okWhole := m.Vocab[parts[0]+parts[1]]
		if !okLeft || !okRight || !okWhole {
			return nil, fmt.Errorf("%w: merge %d joins %q and %q: these or the whole are no tokens", ErrFormat, rank, parts[0], parts[1])
		}
		t.merges[pair{left, right}] = merge{int32(rank), whole}
		crosses = crosses || strings.Contains(strings.TrimLeft(parts[0]+parts[1], metaspace), metaspace)
	}
	if r.spacing.visible && r.split == splitNone && !crosses {
		t.splitter.rule = splitWords
	}
	if m.IgnoreMerges {
		t.whole = make(map[string]int32, len(m.Vocab))
		for _, token := range m.Vocab {
			t.whole[string(t.tokens[token])] = token
		}
	}
	if err := t.setAdded(addedTokens, r); err != nil {
		return nil, err
	}
	t.hash = digest(m, addedTokens, r)
	return t, nil
}

// check reports whether the steps of the file fit together.
func (r recipe) check(m modelJSON) error {
	switch {
	case r.bytes && r.decodes != decodesBytes:
		return unsupported("decoder", "other than ByteLevel with the pre-tokenizer ByteLevel")
	case r.bytes && m.ByteFallback:
		return unsupported("model.byte_fallback", "true with the pre-tokenizer ByteLevel")
	case r.bytes:
		return nil
	case !r.spacing.visible:
		return unsupported("pre_tokenizer", "neither ByteLevel nor Metaspace")
	case !m.ByteFallback:
		return unsupported("model.byte_fallback", "false without the pre-tokenizer ByteLevel")
	case m.IgnoreMerges:
		return unsupported("model.ignore_merges", "true without the pre-tokenizer ByteLevel")
	case r.decodes != decodesMetaspace || !slices.Contains(r.decoders, "ByteFallback"):
		return unsupported("decoder", strings.Join(r.decoders, ", "))
	}
	return nil
}

// setTokens finds the bytes of every token, those of the model first.
func (t *BPE) setTokens(m modelJSON, addedTokens []addedJSON, r recipe) error {
	for _, text := range slices.Sorted(maps.Keys(m.Vocab)) {
		written := fromMetaspace(text)
		if r.bytes {
			written = fromByteLevel(text)
		}
		if err := t.setToken(m.Vocab[text], written, text); err != nil {
			return err
		}
	}
	for _, a := range addedTokens {
		if token, ok := m.Vocab[a.Content]; ok {
			if token != a.ID {
				return fmt.Errorf("%w: the added token %q is %d, in the vocabulary %d", ErrFormat, a.Content, a.ID, token)
			}
			t.tokens[token] = []byte(a.Content)
			continue
		}
		if err := t.setToken(a.ID, []byte(a.Content), a.Content); err != nil {
			return err
		}
	}
	return nil
}

func (t *BPE) setToken(token int32, written []byte, text string) error {
	if token < 0 || token >= maxVocab {
		return fmt.Errorf("%w: token %q has the number %d; 0 to %d are accepted", ErrFormat, text, token, maxVocab-1)
	}
	if n := int(token) + 1 - len(t.tokens); n > 0 {
		t.tokens = append(t.tokens, make([][]byte, n)...)
	}
	if t.tokens[token] != nil || len(written) == 0 {
		return fmt.Errorf("%w: token %d is %q, which is empty or a second one of that number", ErrFormat, token, text)
	}
	t.tokens[token] = written
	return nil
}

// setAlphabet finds the token of every byte, and of every character where characters are
// the symbols.
func (t *BPE) setAlphabet(vocab map[string]int32, byteLevel bool) error {
	for b := range 256 {
		text := fmt.Sprintf("<0x%02X>", b)
		if byteLevel {
			text = string(byteRunes[b])
		}
		token, ok := vocab[text]
		if !ok {
			return fmt.Errorf("%w: the vocabulary lacks %q, the token of byte %#02x: such text would be lost", ErrUnsupported, text, b)
		}
		t.byByte[b] = token
	}
	if byteLevel {
		return nil
	}
	t.byChar = map[rune]int32{}
	for text, token := range vocab {
		if r, size := utf8.DecodeRuneInString(text); size == len(text) {
			t.byChar[r] = token
		}
	}
	return nil
}

// setAdded prepares the search for added tokens and resolves the template.
func (t *BPE) setAdded(tokens []addedJSON, r recipe) error {
	t.added.special = map[string]int32{}
	changes := r.nfc || r.spacing.visible
	for _, a := range tokens {
		if a.Normalized && changes {
			return unsupported("added_tokens: normalized, with a normalizer", a.Content)
		}
		round := &t.added.rounds[0]
		if a.Normalized {
			round = &t.added.rounds[1]
		}
		list := &round.byFirst[a.Content[0]]
		*list = append(*list, addedToken{[]byte(a.Content), a.ID, a.Special})
		slices.SortStableFunc(*list, func(a, b addedToken) int { return len(b.text) - len(a.text) })
		round.ordinary = round.ordinary || !a.Special
		if a.Special {
			t.added.special[a.Content] = a.ID
		}
	}
	var err error
	if t.before, err = t.resolve(r.template.before); err == nil {
		t.after, err = t.resolve(r.template.after)
	}
	return err
}

func (t *BPE) resolve(names []string) ([]int32, error) {
	var tokens []int32
	for _, name := range names {
		token, ok := t.added.special[name]
		if !ok {
			return nil, fmt.Errorf("%w: the template's %q is no special token", ErrFormat, name)
		}
		tokens = append(tokens, token)
	}
	return tokens, nil
}

// byteRunes are the characters that stand for bytes in byte-level files: printable ones
// for themselves, the others for those from U+0100 on (GPT-2's bytes_to_unicode).
var byteRunes = func() (runes [256]rune) {
	next := rune(256)
	for b := range runes {
		if b >= '!' && b <= '~' || b >= '¡' && b <= '¬' || b >= '®' {
			runes[b] = rune(b)
		} else {
			runes[b] = next
			next++
		}
	}
	return runes
}()

// byteOf is the inverse of byteRunes, -1 for other characters.
var byteOf = func() (bytes [256 + 68]int16) {
	for i := range bytes {
		bytes[i] = -1
	}
	for b, r := range byteRunes {
		bytes[r] = int16(b)
	}
	return bytes
}()

// fromByteLevel returns the bytes behind a byte-level spelling; a text with other characters
// stands for itself.
func fromByteLevel(text string) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range text {
		if int(r) >= len(byteOf) || byteOf[r] < 0 {
			return []byte(text)
		}
		out = append(out, byte(byteOf[r]))
	}
	return out
}

// fromMetaspace returns the text behind SentencePiece's spelling.
func fromMetaspace(text string) []byte {
	var b byte
	if n, err := fmt.Sscanf(text, "<0x%02X>", &b); err == nil && n == 1 && len(text) == len("<0x00>") {
		return []byte{b}
	}
	return []byte(strings.ReplaceAll(text, metaspace, " "))
}

// ParseGPT2 reads the texts of GPT-2's vocab.json and merges.txt. The special token is
// `<|endoftext|>`, if the vocabulary has it.
func ParseGPT2(vocab, merges []byte) (*BPE, error) {
	m := modelJSON{Type: "BPE"}
	if err := formatError(json.Unmarshal(vocab, &m.Vocab)); err != nil {
		return nil, fmt.Errorf("%s: %w", vocabFile, err)
	}
	lines := bufio.NewScanner(bytes.NewReader(merges))
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#version") || lines.Text() == "" {
			continue
		}
		if err := m.Merges.addLine(lines.Text()); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrFormat, mergesFile, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFormat, mergesFile, err)
	}
	var added []addedJSON
	if token, ok := m.Vocab[endOfText]; ok {
		added = append(added, addedJSON{ID: token, Content: endOfText, Special: true})
	}
	return build(m, added, recipe{bytes: true, split: splitGPT2, decodes: decodesBytes})
}

const endOfText = "<|endoftext|>"

// digest hashes all that tokens depend on, in a spelling of its own: a tokenizer has the
// same digest from either kind of files.
func digest(m modelJSON, added []addedJSON, r recipe) (sum [sha256.Size]byte) {
	h := sha256.New()
	put(h, "bpe 1", r.split, r.bytes, r.nfc, r.spacing, m.IgnoreMerges)
	for _, text := range slices.Sorted(maps.Keys(m.Vocab)) {
		put(h, text, m.Vocab[text])
	}
	for _, merge := range m.Merges {
		put(h, merge[0], merge[1])
	}
	for _, a := range added { // the rounds matter where there are two
		put(h, a.ID, a.Content, a.Special, a.Normalized != added[0].Normalized)
	}
	h.Sum(sum[:0])
	return sum
}

// put writes values so that no two lists look alike.
func put(h hash.Hash, values ...any) {
	for _, v := range values {
		text := fmt.Sprint(v)
		h.Write(binary.AppendUvarint(nil, uint64(len(text))))
		h.Write([]byte(text))
	}
}
