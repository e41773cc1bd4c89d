package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"pnode/node/dataset/files"
)

// MaxFileBytes bounds a tokenizer's file; the largest in use have 35 MB.
const MaxFileBytes = 256 << 20

// The names of the files.
const (
	jsonFile   = "tokenizer.json"
	vocabFile  = "vocab.json"
	mergesFile = "merges.txt"
	configFile = "tokenizer_config.json"
	addedFile  = "added_tokens.json"
)

// Files are the names of what a folder may hold about its tokenizer, for copying.
var Files = []string{
	jsonFile, vocabFile, mergesFile, addedFile, configFile,
	"special_tokens_map.json", "tokenizer.model", "chat_template.jinja",
}

// Open reads the tokenizer of a folder: tokenizer.json, or else vocab.json and merges.txt,
// which are taken for GPT-2's; or a file of tokenizer.json's form. Errors wrap
// ErrUnsupported, ErrFormat or fs.ErrNotExist.
func Open(path string) (*BPE, error) {
	t, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: open %s: %w", path, err)
	}
	return t, nil
}

// FromFiles is Open of a folder whose files are in memory, by name.
func FromFiles(files map[string][]byte) (*BPE, error) {
	t, err := openFolder(func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return text, nil
		}
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	})
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

func open(path string) (*BPE, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; name a %s, or a folder with it or with %s and %s", err, jsonFile, vocabFile, mergesFile)
	}
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return openFolder(func(name string) ([]byte, error) { return readFile(filepath.Join(path, name)) })
	}
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(text)
}

// folder reads a file by its name; the error wraps fs.ErrNotExist when there is none.
type folder func(name string) ([]byte, error)

func openFolder(read folder) (*BPE, error) {
	text, err := read(jsonFile)
	if errors.Is(err, fs.ErrNotExist) {
		return openGPT2(read)
	}
	if err != nil {
		return nil, err
	}
	t, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", jsonFile, err)
	}
	return t, nil
}

func readFile(path string) ([]byte, error) {
	text, err := files.Read(path, MaxFileBytes)
	if errors.Is(err, files.ErrTooLarge) {
		err = fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return text, err
}

// openGPT2 reads GPT-2's own two files. Other families use the same names with other
// rules, so a tokenizer_config.json that says so is refused.
func openGPT2(read folder) (*BPE, error) {
	vocab, err := read(vocabFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: neither %s nor %s and %s", fs.ErrNotExist, jsonFile, vocabFile, mergesFile)
	}
	if err != nil {
		return nil, err
	}
	merges, err := read(mergesFile)
	if err != nil {
		return nil, err
	}
	if err := checkGPT2(read); err != nil {
		return nil, err
	}
	return ParseGPT2(vocab, merges)
}

func checkGPT2(read folder) error {
	if _, err := read(addedFile); err == nil {
		return fmt.Errorf("%w: %s beside %s; save the tokenizer as %s", ErrUnsupported, addedFile, vocabFile, jsonFile)
	}
	text, err := read(configFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var config struct {
		Class       string `json:"tokenizer_class"`
		PrefixSpace bool   `json:"add_prefix_space"`
	}
	if err := formatError(json.Unmarshal(text, &config)); err != nil {
		return fmt.Errorf("%s: %w", configFile, err)
	}
	switch {
	case config.Class != "" && config.Class != "GPT2Tokenizer" && config.Class != "GPT2TokenizerFast":
		return fmt.Errorf("%w: tokenizer_class %q with %s and %s alone; save it as %s", ErrUnsupported, config.Class, vocabFile, mergesFile, jsonFile)
	case config.PrefixSpace:
		return fmt.Errorf("%w: add_prefix_space with %s and %s alone; save the tokenizer as %s", ErrUnsupported, vocabFile, mergesFile, jsonFile)
	}
	return nil
}
