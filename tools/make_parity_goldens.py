#!/usr/bin/env python3
"""Writes the logits of Hugging Face transformers for a checkpoint of `fathom model make`; Fathom must agree with
them.

    fathom model make --shape tiny --seed 1 DIR
    tools/make_parity_goldens.py DIR tests/goldens/tiny

writes tests/goldens/tiny.json (what was run, the prompt, 200 greedy tokens) and tests/goldens/tiny.safetensors (logits).
Needs: pip install torch transformers safetensors xxhash. The model runs in fp32 with eager attention; the experts' MXFP4
is decoded here, by the format's definition. For each likely mistake in an implementation of the model, the same
prompt is also run with that mistake, to prove that these logits detect it.
"""
import argparse
import copy
import hashlib
import json
import pathlib

import torch
import transformers
import xxhash
from safetensors.torch import load_file, save_file

GREEDY_TOKENS = 200
MIN_GAP = 1e-3  # between the best and the second-best logit, so that no rounding changes a greedy token
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def mxfp4(blocks, scales):
    """[E, out, G, 16] and [E, out, G] bytes to the [E, in, out] that transformers wants."""
    values = E2M1[torch.stack([blocks & 15, blocks >> 4], -1).int()].flatten(-2)  # low nibble first
    return torch.ldexp(values, scales.int()[..., None] - 127).flatten(-2).transpose(1, 2).contiguous()


def load(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config.pop("quantization_config")["quant_method"] == "mxfp4"
    tensors = load_file(folder / "model.safetensors")
    state = {}
    for name, tensor in tensors.items():
        if name.endswith("_blocks"):
            state[name.removesuffix("_blocks")] = mxfp4(tensor, tensors[name.removesuffix("_blocks") + "_scales"])
        elif not name.endswith("_scales"):
            state[name] = tensor.float()
    return config, state


def build(config, state, hooks=None, dtype=torch.float32):
    """hooks: the end of a module's name -> a forward hook."""
    config = transformers.GptOssConfig.from_dict(copy.deepcopy(config))
    config._attn_implementation = config._experts_implementation = "eager"
    assert config.rope_parameters["rope_theta"] == 150000
    with torch.device("meta"):
        model = transformers.GptOssForCausalLM(config)
    model.load_state_dict(state, strict=True, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    for name, module in model.named_modules():
        for end, hook in (hooks or {}).items():
            if name.endswith(end):
                module.register_forward_hook(hook)
    return model.to(dtype).eval()


def gated(clamp_gate, one):
    """A forward for the experts that differs in its gate."""
    def hook(module, args, _):
        def gate(gate_up):
            g, up = gate_up[..., ::2], gate_up[..., 1::2].clamp(-module.limit, module.limit)
            g = clamp_gate(g, module.limit)
            return (up + one) * g * torch.sigmoid(g * module.alpha)
        right, module._apply_gate = module._apply_gate, gate
        out = type(module).forward(module, *args)
        module._apply_gate = right
        return out
    return hook


def traps(config, state):
    """name -> (config, state, hooks) of a model with that mistake."""
    rope = config["rope_scaling"]
    half, Dh = config["head_dim"] // 2, config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]

    def configured(**changes):
        return config | changes, state, None

    def stated(end, change):
        return config, {name: change(t) if name.endswith(end) else t for name, t in state.items()}, None

    def hooked(end, hook):
        return config, state, {end: hook}

    def per_head(t, count, order):  # permutes rows of a q or k matrix or bias within each head
        return t.view(count, Dh, -1)[:, order].reshape(t.shape)

    # The interleaved rotation as a permutation of the half-split one.
    pairs = torch.arange(Dh).view(half, 2).t().flatten()
    rotated = {name: per_head(t, heads if ".q_proj" in name else kv_heads, pairs)
               if ".q_proj" in name or ".k_proj" in name else t for name, t in state.items()}
    # Query head h reads key head h % kv_heads: permutes the heads with all their parameters.
    swapped = torch.arange(heads).view(-1, kv_heads).t().flatten()
    gqa = dict(state)
    for name, t in state.items():
        if ".q_proj" in name:
            gqa[name] = t.view(heads, Dh, -1)[swapped].reshape(t.shape)
        elif name.endswith("sinks"):
            gqa[name] = t[swapped]
        elif name.endswith("o_proj.weight"):
            gqa[name] = t.view(-1, heads, Dh)[:, swapped].reshape(t.shape)

    def along_in(order):  # of the 32 of a block
        return lambda t: t.view(t.shape[0], -1, 32, t.shape[2])[:, :, order].reshape(t.shape)

    block = torch.arange(32)
    yield "window one key short", configured(sliding_window=config["sliding_window"] - 1)
    yield "window one key long", configured(sliding_window=config["sliding_window"] + 1)
    yield "layer 0 is full", configured(layer_types=config["layer_types"][1:] + config["layer_types"][:1])
    yield "no sinks", stated("sinks", lambda t: torch.full_like(t, -1e9))
    yield "sinks scaled", stated("sinks", lambda t: t * Dh**-0.5)
    yield "sinks added twice", stated("sinks", lambda t: t + torch.tensor(2.0).log())
    yield "gate and up in halves", stated(
        "gate_up_proj", lambda t: torch.stack(t.chunk(2, -1), -1).flatten(-2))
    yield "gate clamped on both sides", hooked("mlp.experts", gated(lambda g, m: g.clamp(-m, m), 1))
    yield "gate not clamped", hooked("mlp.experts", gated(lambda g, m: g, 1))
    yield "up without its 1", hooked("mlp.experts", gated(lambda g, m: g.clamp(max=m), 0))
    yield "alpha is 1", configured(swiglu_alpha=1.0)
    if config["num_local_experts"] > config["num_experts_per_tok"]:
        yield "softmax over all experts", hooked(
            "mlp.router", lambda m, args, out: (out[0], out[0].softmax(-1).gather(-1, out[2]), out[2]))
    yield "expert bias not weighted", hooked(
        "mlp.experts", lambda m, args, out: out + ((1 - args[2])[..., None] * m.down_proj_bias[args[1]]).sum(1))
    yield "YaRN's range truncated", configured(rope_scaling=rope | {"truncate": True})
    yield "no concentration", configured(rope_scaling=rope | {"attention_factor": 1.0})
    yield "no YaRN", configured(rope_scaling={"rope_type": "default"})
    yield "interleaved rotation", (config, rotated, None)
    yield "query heads strided over key heads", (config, gqa, None)
    yield "high nibble first", stated("_proj", along_in(block.view(16, 2).flip(1).flatten()))
    yield "ggml's nibble order", stated("_proj", along_in(block.view(16, 2).t().flatten()))
    for what, end in (("q", "q_proj.bias"), ("k", "k_proj.bias"), ("v", "v_proj.bias"), ("output", "o_proj.bias"),
                      ("router", "router.bias"), ("gate and up", "gate_up_proj_bias"), ("down", "down_proj_bias")):
        yield f"no {what} bias", stated(end, torch.zeros_like)


@torch.no_grad()
def logits_of(model, ids):
    return model(torch.tensor([ids]), use_cache=False).logits[0]


@torch.no_grad()
def greedy(model, prompt):
    ids, gaps, cache, next_ids = [], [], None, prompt
    for _ in range(GREEDY_TOKENS):
        out = model(torch.tensor([next_ids]), past_key_values=cache, use_cache=True)
        cache, best = out.past_key_values, out.logits[0, -1].topk(2)
        next_ids = [best.indices[0].item()]
        ids += next_ids
        gaps.append((best.values[0] - best.values[1]).item())
        if gaps[-1] < MIN_GAP:
            break
    return ids, gaps


def prompt_of(salt, length, vocab):
    return [(7 * t * t + salt * t + 3) % vocab for t in range(length)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("golden", help="path of the goldens, without an extension")
    parser.add_argument("--prompt-tokens", type=int, default=67)
    parser.add_argument("--every", type=int, default=1, help="keep the logits of every n-th position, and the last")
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation

    config, state = load(args.folder)
    model = build(config, state)
    for salt in range(1, 1000):
        prompt = prompt_of(salt, args.prompt_tokens, config["vocab_size"])
        ids, gaps = greedy(model, prompt)
        print(f"salt {salt}: {len(gaps)} tokens, {len(set(ids))} different, smallest gap {min(gaps):.2g}", flush=True)
        if min(gaps) >= MIN_GAP:
            break
    whole = logits_of(model, prompt + ids[:-1])
    assert whole[len(prompt) - 1:].argmax(-1).tolist() == ids  # without a cache, the same

    positions = sorted({*range(0, len(prompt), args.every), len(prompt) - 1})
    logits = logits_of(model, prompt)
    exact = logits_of(build(config, state, dtype=torch.float64), prompt)
    print(f"fp32 against fp64: {(logits - exact).abs().max():.2g}")

    sprung, difference = [], {}
    for name, parts in traps(config, state):
        wrong = logits_of(build(*parts), prompt)[-1]
        sprung.append(wrong)
        difference[name] = round((wrong - logits[-1]).abs().max().item(), 6)
        print(f"{difference[name]:10.6f}  {name}")

    weights = (args.folder / "model.safetensors").read_bytes()
    save_file({"logits": logits[positions].contiguous(), "trap_logits": torch.stack(sprung)}, args.golden + ".safetensors")
    facts = {
        "model_sha256": hashlib.sha256(weights).hexdigest(),
        "model_xxh64": xxhash.xxh64_hexdigest(weights),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "max_fp32_error": round((logits - exact).abs().max().item(), 9),
        "prompt_formula": f"(7 t^2 + {salt} t + 3) mod {config['vocab_size']}",
        "prompt_ids": prompt,
        "positions": positions,
        "greedy_ids": ids,
        "smallest_greedy_gap": round(min(gaps), 6),
        "greedy_gaps": [round(gap, 6) for gap in gaps],
        "traps": difference,
    }
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in facts.items())
    pathlib.Path(args.golden + ".json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
