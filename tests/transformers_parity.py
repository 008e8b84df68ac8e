#!/usr/bin/env python3
"""The error of the engine's log-probabilities against Hugging Face transformers in fp32, beside the error of
transformers in bf16: same random weights of the 20b shape, same tokens, same machine.

usage: transformers_parity.py FATHOM [--layers 2] [--prompts 64] [--json FILE]

A server answers each prompt alone and again in a batch, so that the kernels for few rows and for many rows, of
prefill and of decode, all take part. It reports the 20 likeliest candidates for every token of an answer;
transformers computes the same candidates after the same tokens. Exits with 1 if our rms or maximal error is more than
twice that of transformers in bf16, or if our first token differs from that of fp32 although fp32 separates the two by
more than four times the error of bf16; with 4 if torch, transformers or a GPU is missing.
`--device cpu --shape tiny` tests the comparison itself on any machine.
"""
import argparse
import concurrent.futures
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from serve_process import COMPLETIONS, Server

SKIP = 4
SEED = 6
# Boundaries of the few-row kernels, of pages and of the window.
EDGES = (1, 2, 3, 4, 5, 8, 9, 64, 65, 127, 128, 129, 257, 700)
AT_ONCE, ANSWER, CANDIDATES = 16, 8, 20
GROUPS = ("prompt of 1-4, alone", "prompt of 5-8, alone", "longer prompt, alone", "next token, alone",
          f"prompt, {AT_ONCE} at once", f"next token, {AT_ONCE} at once")
BF16, BF16_HEAD_FP32 = "bf16", "bf16, but fp32 logits"


# The engine's side.

def prompts_of(count, vocab):
    rng = random.Random(SEED)
    lengths = [*EDGES, *(round(math.exp(rng.uniform(0, math.log(700)))) for _ in range(count))][:count]
    return [[rng.randrange(256, vocab) for _ in range(length)] for length in lengths]


def ids_by_name(folder, vocab):
    """A vocabulary of unique made-up words. Bytes that are no character are left out: they all decode to the same
    text."""
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    return ({chr(i): i for i in range(128)} | {f" w{i}": i for i in range(256, vocab)}
            | {token["content"]: token["id"] for token in added})


def answer(server, names, prompt):
    """[(id, {id of a candidate: log-probability})] of each token of the answer."""
    said = server.ask(COMPLETIONS, prompt=prompt, max_tokens=ANSWER, temperature=0, logprobs=CANDIDATES,
                      ignore_eos=True)["choices"][0]["logprobs"]
    found = []
    for name, top in zip(said["tokens"], said["top_logprobs"], strict=True):
        if name not in names:
            break  # an unknown token cannot be continued
        found.append((names[name], {names[n]: logprob for n, logprob in top.items() if n in names}))
    return found


def answers(fathom, args, folder, names, prompts):
    """[(group, ids before, id, candidates)]."""
    found = []
    # A repeated prompt must be computed again.
    with Server(fathom, "--device", args.device, "--no-prefix-cache", "--kv-tokens", 65536, model=folder) as server:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            together = list(pool.map(lambda prompt: answer(server, names, prompt), prompts))
        alone = [answer(server, names, prompt) for prompt in prompts]
    for prompt, said, said_together in zip(prompts, alone, together):
        first = GROUPS[0 if len(prompt) <= 4 else 1 if len(prompt) <= 8 else 2]
        for tokens, groups in ((said, (first, GROUPS[3])), (said_together, GROUPS[4:])):
            for i, (token, candidates) in enumerate(tokens):
                found.append((groups[i > 0], (*prompt, *(t for t, _ in tokens[:i])), token, candidates))
    return found


# The side of transformers.

def mxfp4(torch, blocks, scales):
    """[E, out, G, 16] and [E, out, G] bytes to the [E, in, out] that transformers wants; bf16 holds every such number."""
    assert 8 < scales.min() and scales.max() < 247, "a scale whose float is not exact"
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], device=blocks.device)
    powers = (scales.int() << 23).view(torch.float32)  # 2^(scale - 127)
    values = numbers[torch.stack([blocks & 15, blocks >> 4], -1).int()].flatten(-2)  # low nibble first
    return (values * powers[..., None]).to(torch.bfloat16).flatten(-2).transpose(1, 2).contiguous()


def models(torch, transformers, folder, device):
    """(fp32, bf16)."""
    from safetensors.torch import load_file
    config = json.loads((folder / "config.json").read_text())
    assert config.pop("quantization_config")["quant_method"] == "mxfp4"
    stored = load_file(folder / "model.safetensors", device=device)
    state = {}
    for name, tensor in stored.items():
        if name.endswith("_blocks"):
            matrix = name.removesuffix("_blocks")
            state[matrix] = mxfp4(torch, tensor, stored[matrix + "_scales"])
        elif not name.endswith("_scales"):
            state[name] = tensor
    made = []
    for dtype in (torch.float32, torch.bfloat16):
        settings = transformers.GptOssConfig.from_dict({**config, "dtype": dtype})
        settings._attn_implementation = settings._experts_implementation = "eager"
        with torch.device("meta"):
            model = transformers.GptOssForCausalLM(settings)
        model.load_state_dict({name: tensor.to(dtype) for name, tensor in state.items()}, strict=True, assign=True)
        # RoPE frequencies are not weights: both models compute them in fp32.
        model.model.rotary_emb = type(model.model.rotary_emb)(settings).to(device)
        made.append(model.eval())
    return made


def log_probabilities(torch, exact, half, ids, count, device):
    """{name: [count, vocab]} after each of the last `count` of the ids, fp32 first."""
    with torch.no_grad():
        ids = torch.tensor([ids], device=device)
        hidden = [model.model(ids, use_cache=False).last_hidden_state[0, -count:] for model in (exact, half)]
        logits = {"fp32": exact.lm_head(hidden[0]), BF16: half.lm_head(hidden[1]),
                  BF16_HEAD_FP32: exact.lm_head(hidden[1].float())}
    return {name: values.float().log_softmax(-1) for name, values in logits.items()}


# The comparison.

def compare(torch, said, exact, half, device):
    """One record for each token of the engine's answers."""
    known = {}  # ids -> {name: log-probabilities after them}
    for _, before, token, _ in sorted(said, key=lambda s: -len(s[1])):
        if before in known:
            continue
        first = min(len(b) for _, b, _, _ in said if before[:len(b)] == b)
        found = log_probabilities(torch, exact, half, before, len(before) - first + 1, device)
        for i in range(len(before) - first + 1):
            known.setdefault(before[:first + i], {name: values[i] for name, values in found.items()})
    records = []
    for group, before, token, candidates in said:
        right = known[before]["fp32"]
        ids = torch.tensor(list(candidates), device=device)
        best = right.topk(2)
        errors = {name: (values[ids] - right[ids]).tolist() for name, values in known[before].items() if name != "fp32"}
        errors["ours"] = (torch.tensor(list(candidates.values()), device=device, dtype=torch.float64) - right[ids]).tolist()
        records.append({"group": group, "tokens_before": len(before), "gap": (best.values[0] - best.values[1]).item(),
                        "same_first": best.indices[0].item() == token,
                        "bf16_same_first": best.indices[0].item() == known[before][BF16].argmax().item(), "errors": errors})
    return records


def summary(records):
    found = {"tokens": len(records), "pairs": sum(len(r["errors"]["ours"]) for r in records)}
    for name in ("ours", BF16, BF16_HEAD_FP32):
        errors = [abs(e) for r in records for e in r["errors"][name]]
        found[name] = {"rms": math.sqrt(sum(e * e for e in errors) / len(errors)), "max": max(errors),
                       "median": statistics.median(errors)}
    return found


def top_1(records, bound):
    apart = [r for r in records if r["gap"] > bound]
    return {"gap_over": bound, "tokens": len(apart), "different": sum(not r["same_first"] for r in apart),
            "bf16_different": sum(not r["bf16_same_first"] for r in apart)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fathom", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--shape", default="gpt-oss-20b")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"skipped: {error}")
        return SKIP
    if args.device == "cuda" and not torch.cuda.is_available():
        print("skipped: torch sees no GPU")
        return SKIP
    torch.backends.cuda.matmul.allow_tf32 = False  # real fp32 products

    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "model"
        subprocess.run([args.fathom.resolve(), "model", "make", "--shape", args.shape, "--layers", str(args.layers),
                        "--tokenizer", folder], check=True, stdout=subprocess.DEVNULL)
        vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
        prompts = prompts_of(args.prompts, vocab)
        said = answers(args.fathom.resolve(), args, folder, ids_by_name(folder, vocab), prompts)
        exact, half = models(torch, transformers, folder, args.device)
    records = compare(torch, said, exact, half, args.device)

    total = summary(records)
    groups = {group: summary(chosen) for group in GROUPS if (chosen := [r for r in records if r["group"] == group])}
    where = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    print(f"{args.shape}, {args.layers} layers, on {where}; torch {torch.__version__}, transformers "
          f"{transformers.__version__}")
    print("log-probabilities, error against fp32: rms, max, median. An expert that is chosen otherwise, where fp32\n"
          "all but ties, makes a large error; the median hardly feels it.")
    print(f"{'':26}{'pairs':>6}  {'ours':>22}  {'transformers bf16':>22}  {'with fp32 logits':>22}")
    for name, found in {**groups, "all": total}.items():
        columns = (" ".join(f"{value:.4f}" for value in found[n].values()) for n in ("ours", BF16, BF16_HEAD_FP32))
        print("{:26}{:6}  {:>22}  {:>22}  {:>22}".format(name, found["pairs"], *columns))
    ratios = {what: total["ours"][what] / total[BF16][what] for what in ("rms", "max")}
    by_max, by_rms = (top_1(records, 4 * total[BF16][what]) for what in ("max", "rms"))
    print(f"of bf16's: rms {ratios['rms']:.2f}, max {ratios['max']:.2f} (at most 2)")
    for what, found in (("max", by_max), ("rms", by_rms)):
        print(f"gap over 4 x {what} = {found['gap_over']:.3f}: {found['tokens']} of {len(records)} tokens, first differs in "
              f"{found['different']} (bf16: {found['bf16_different']})")
    for r in sorted(records, key=lambda r: -max(map(abs, r["errors"]["ours"])))[:3]:
        largest = {name: max(map(abs, errors)) for name, errors in r["errors"].items()}
        print(f"worst: {r['group']}, {r['tokens_before']} before it: ours {largest['ours']:.4f}, bf16 {largest[BF16]:.4f}")
    passed = max(ratios.values()) <= 2 and by_max["different"] == 0
    print("passed" if passed else "FAILED")
    if args.json:
        args.json.write_text(json.dumps({
            "shape": args.shape, "layers": args.layers, "prompts": len(prompts), "device": where, "torch": torch.__version__,
            "transformers": transformers.__version__, "passed": passed, "all": total, "groups": groups, "ratios": ratios,
            "top_1": {"over_4_max": by_max, "over_4_rms": by_rms}}, indent=1) + "\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
