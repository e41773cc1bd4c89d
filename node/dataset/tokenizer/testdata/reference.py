"""Makes small tokenizers of every supported kind with the reference implementation
(Python package tokenizers) and writes what it encodes hard documents to:

    python3 reference.py                          tokenizers and cases of the tests here
    python3 reference.py FOLDER CASES [FILE...]   cases for the tokenizer of a folder, with
                                                  many more random documents and the
                                                  paragraphs of some files

The second form is for tokenizers that are not part of this project: put CASES.json into a
folder and name it in PNODE_TOKENIZER_CASES when running the tests.
"""
import json
import os
import random
import sys

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import AddedToken

SAMPLE = """The quick brown fox jumps over the lazy dog. It's what we'll do, they've said; I'm sure he'd go.
One plus one is two, 1 + 1 = 2, and 1234567 times 89 is 109876463. "Quotes" (and brackets) [too]!
    def encode(text, special=False):
        for piece in split(text):   # indented by four spaces
            yield from merge(piece)
\treturn [token for token in tokens if token >= 0]\n\n\n
Größe, Straße, naïve café, señor, Œuvre, Привет мир, как дела? Γειά σου Κόσμε. שלום עולם. مرحبا بالعالم.
你好，世界。こんにちは世界、カタカナ。안녕하세요 세계. नमस्ते दुनिया। สวัสดีชาวโลก 😀👍🏽👨‍👩‍👧 e\u0301 n\u0303
""" * 3

GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4_HF = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
QWEN2 = GPT4.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_level(pre, size, normalizer=None, **model):
    t = Tokenizer(models.BPE(**model))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    t.train_from_iterator(SAMPLE.splitlines(keepends=True), trainer)
    return t


def split(expression, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(expression), behavior, invert),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])


def sentencepiece(size, normalizer=None, pre=None, words=False):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if normalizer:
        t.normalizer = normalizer
    if pre or words:  # words: as SentencePiece, no token over the end of a word
        t.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", True) if words else pre
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, limit_alphabet=90, show_progress=False, max_token_length=12)
    t.train_from_iterator(SAMPLE.splitlines(keepends=True), trainer)
    saved = json.loads(t.to_str())
    saved["added_tokens"] = [a for a in saved["added_tokens"] if not a["content"].startswith("<0x")]
    t = Tokenizer.from_str(json.dumps(saved))
    if pre:
        t.pre_tokenizer = pre
    t.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return t


def kinds():
    t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), 420)
    t.add_special_tokens([AddedToken("<|endoftext|>", normalized=True)])
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<tool>s", normalized=False), AddedToken("ool", normalized=True)])
    yield "gpt2", t

    yield "prefix", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), 340)

    t = byte_level(split(GPT4), 420, ignore_merges=True)
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    begin = t.token_to_id("<|begin_of_text|>")
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B:1",
                                      special_tokens=[("<|begin_of_text|>", begin)])])
    yield "llama3", t

    yield "gpt4", byte_level(split(GPT4_HF, "removed", True), 380)

    t = byte_level(split(QWEN2), 420, normalizer=normalizers.NFC())
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken("<tool_call>", normalized=False)])
    yield "qwen2", t

    llama2 = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    yield "llama2", sentencepiece(600, normalizer=llama2)
    yield "mistral", sentencepiece(600, pre=pre_tokenizers.Metaspace("▁", "first", False), words=True)
    yield "metaspace", sentencepiece(560, pre=pre_tokenizers.Metaspace("▁", "always", True))


PIECES = [
    " ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u3000", "\u0085", "\u2028", "\x0b", "\x00", "\x1f",
    "a", "the", "The", "Z", "'s", "'S", "'ll", "'LL", "'Ve", "'re", "'d", "'", "''", "'\u017f", "\u017f", "’s",
    "1", "12", "345", "6789", "١٢", "Ⅷ", "½", "²", "x2", "3d", "1.5", "-", "--", "!", "?!", "...", "\"", "(", ")", "_", "#", "$", "//", "==",
    "é", "e\u0301", "ñ", "Å", "\u212b", "\u0344", "ß", "İ", "ﬁ", "ǆ", "한", "\u1112\u1161\u11ab", "あ", "が", "か\u3099", "漢字", "中文", "ไทย", "हिन्दी", "עברית", "العربية",
    "😀", "👍🏽", "👨‍👩‍👧", "\u200b", "\u200d", "\ufeff", "\ufffd", "\U0001f1e6", "\U000e0020", "\U0010ffff", "\u0378", "\U00016100", "\u1c89", "\u0301", "\u0301\u0327", "▁", "▁a", "Ġ", "<0x41>",
    "<|endoftext|>", "<|endof", "text|>", "<|im_start|>", "<tool>", "<tool>s", "ool", "<tool_call>", "<|begin_of_text|>", "<s>", "</s>", "<unk>", "<",
]


def documents(count, seed):
    yield ""
    yield from PIECES
    yield from SAMPLE.splitlines(keepends=True)[:12]
    yield SAMPLE
    yield "a" * 300
    yield "ab" * 100 + "the" * 60
    yield " " * 70 + "x" + "\n" * 40 + " " * 40
    yield "é" * 90 + "😀" * 20
    yield "xa" + "\u0301" * 40 + "\u0323" * 40 + "b\u0301"
    draw = random.Random(seed)
    for _ in range(count):
        yield "".join(draw.choice(PIECES) for _ in range(draw.randint(2, 14)))
    for _ in range(count // 2):
        high = draw.choice([0x80, 0x250, 0x3000, 0x11000, 0x110000])
        points = (draw.randrange(high) for _ in range(draw.randint(1, 20)))
        yield "".join(chr(p) for p in points if not 0xD800 <= p < 0xE000)


def write_cases(t, name, path, texts):
    cases = []
    for text in texts:
        t.encode_special_tokens = True
        case = {"text": text, "ids": t.encode(text, add_special_tokens=False).ids}
        t.encode_special_tokens = False
        special = t.encode(text, add_special_tokens=False).ids
        if special != case["ids"]:
            case["special"] = special
        cases.append(case)
    with open(path, "w") as f:
        json.dump({"tokenizer": name, "vocab": t.get_vocab_size(), "cases": cases}, f, separators=(",", ":"))
        f.write("\n")


def main():
    if len(sys.argv) > 2:
        folder, out, files = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]
        if os.path.exists(os.path.join(folder, "tokenizer.json")):
            t = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        else:
            t = Tokenizer(models.BPE.from_file(os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt")))
            t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            t.add_special_tokens(["<|endoftext|>"])
        texts = list(documents(20000, 2))
        for name in files:
            text = open(name, encoding="utf-8").read()
            texts += text.split("\n\n") + [text[:1000000]]
        write_cases(t, folder, out, texts)
        return
    for name, t in kinds():
        saved = json.loads(t.to_str())
        with open(name + ".json", "w") as f:
            json.dump(saved, f, ensure_ascii=False, separators=(",", ":"))
            f.write("\n")
        write_cases(t, name + ".json", name + ".cases.json", documents(60, 1))


main()
