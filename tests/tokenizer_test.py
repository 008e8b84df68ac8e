"""Token ids of src/model/tokenizer.h against the `tokenizers` package, on a vocabulary trained by this test.

usage: tokenizer_test.py PATH_OF_tokenizer_encode
Exits with 77 (skipped) where the package is absent: pip install tokenizers.
"""
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
except ImportError:
    print("skipped: no package `tokenizers`; pip install tokenizers")
    sys.exit(77)

SUFFIX = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
O200K = "|".join([
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{SUFFIX}",
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{SUFFIX}",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
SPECIALS = ["<|start|>", "<|end|>", "<|message|>", "<|end|>>"]

# Characters of every class that the pattern distinguishes, and edge cases.
CHARACTERS = list("aeilostnrdvmABCZ 019.,'!/-<|>{}\n\r\t") + [
    "é", "É", "ß", "ǅ", "ʰ", "中", "文", "\u0301", "٣", "½", "\u017f", "\u00a0", "\u0085", "\u180e", "\u2028",
    "\u200b", "\u3000", "😀", "👩\u200d🚀", "🇫🇷", "\u0000", "ﷺ", "न", "ि", "\U0010ffff"]
WORDS = ["the", "The", " people", "don't", "WE'LL", "HTTPServer", "it'\u017f", "   ", "\n\n", "1234567",
         "return x;", "naïve", "你好", "<|end|>", "<|start|>"]


def texts(generator):
    yield from ["", " ", "a", "\n", *WORDS, *CHARACTERS]
    for _ in range(4000):
        size = generator.randrange(1, 40)
        yield "".join(generator.choice(generator.choice([CHARACTERS, WORDS])) for _ in range(size))
    yield "a" * 20000
    yield " " * 20000 + "x"


def trained(pre_tokenizer, corpus):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    return tokenizer


def compare(name, tokenizer, program, samples, folder):
    path = folder / f"{name}.json"
    tokenizer.save(str(path))
    lines = subprocess.run([program, str(path)], input="".join(s.encode().hex() + "\n" for s in samples),
                           capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == len(samples), f"{name}: {len(lines)} answers to {len(samples)} texts"
    for text, line in zip(samples, lines):
        plain, added, decoded = line.split("\t")
        for special, ids in ((False, plain), (True, added)):
            tokenizer.encode_special_tokens = not special
            expected = tokenizer.encode(text, add_special_tokens=False).ids
            assert [int(i) for i in ids.split()] == expected, f"{name}: {text!r}: {ids} is not {expected}"
        expected = tokenizer.decode([int(i) for i in added.split()], skip_special_tokens=False)
        assert bytes.fromhex(decoded).decode() == expected == text, f"{name}: {text!r} decodes otherwise"
    print(f"{name}: {len(samples)} texts, the same ids")


def main():
    generator = random.Random(1)
    samples = list(texts(generator))
    corpus = [sample for sample in samples if "<|" not in sample][:2000]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    o200k = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(O200K), "isolated"), byte_level])
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, pre_tokenizer in (("o200k", o200k), ("gpt2", gpt2)):
            tokenizer = trained(pre_tokenizer, corpus)
            compare(name, tokenizer, sys.argv[1], samples, folder)
            tokenizer.model.ignore_merges = True
            compare(f"{name}_ignore_merges", tokenizer, sys.argv[1], samples, folder)


if __name__ == "__main__":
    main()
