// Package tokenizer turns bytes into the tokens a model reads, and back.
//
// # Nouns
//
//   - Tokenizer: what the rest of the program sees: Encode, Decode, Vocab, Hash.
//   - Bytes: one token a byte, the vocabulary of the small presets.
//   - BPE: byte pair encoding (Sennrich et al. 2016) as Hugging Face's files describe it:
//     over bytes (GPT-2, Llama 3, Qwen2) or over characters with bytes for those that are
//     not in the vocabulary (SentencePiece's, Llama 2 and Mistral).
//   - splitter: cuts text into the pieces that are encoded each for itself. Those of the
//     known families are written by hand; each equals the regular expression that the
//     file spells, for which its comment gives the alternatives in order.
//
// # What holds
//
// Encode returns the tokens of the reference (Python package tokenizers) on all valid UTF-8.
// On other bytes, which the reference does not take, each stray byte counts as a character
// that is neither letter, number nor space. Decode gives back the bytes that went into
// Encode, except where the tokenizer itself changes text: a normalizer, a space put in
// front, the character U+2581 of SentencePiece. Which characters are letters is a table of
// this package (Unicode 16, as in the reference), so that tokens do not depend on the
// compiler's version.
//
// Text is text: `<|endoftext|>` in a document becomes ordinary tokens.
//
// # What it refuses
//
// Whatever a file asks for and this package does not do is an error that wraps
// ErrUnsupported and names the field and its value: unknown normalizers, pre-tokenizers,
// expressions, post-processors, decoders, model types, flags of added tokens, truncation,
// padding. Nothing is ignored. Files are bounded in size before they are read.
//
// Tokenizers are safe for concurrent use. Package dataset and the commands call it; it
// imports nothing of this program but readers of files and of JSON.
package tokenizer
