"""gpt-oss in PyTorch, for training the bundled model: exactly its architecture, the experts computed densely.

Parameters are stacked over layers, in the shapes of an un-quantised Hugging Face checkpoint.
"""
import dataclasses
import json
import math
import os
import pathlib

import torch

LIMIT, ALPHA, EPS = 7.0, 1.702, 1e-5
THETA, FACTOR, ORIGINAL_CONTEXT, BETA_FAST, BETA_SLOW = 150000.0, 32.0, 4096, 32.0, 1.0
MX_BLOCK = 32


@dataclasses.dataclass(frozen=True)
class Shape:
    vocab: int
    hidden: int = 256
    intermediate: int = 224
    layers: int = 6
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 32
    experts: int = 8
    top_k: int = 4
    window: int = 64

    def mxfp4_bytes(self):
        """Bytes of the checkpoint's tensors, with MXFP4 experts and bf16 for the rest."""
        H, I, E = self.hidden, self.intermediate, self.experts
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        dense = 2 * H + (q + 2 * kv) * (H + 1) + H * (q + 1) + self.heads + E * (H + 1) + E * (2 * I + H)
        return self.layers * (2 * dense + E * 3 * H * I * 17 // 32) + 2 * (2 * self.vocab * H + H)


def rope_frequencies(head_dim):
    """YaRN without truncation, and its concentration."""
    half = head_dim // 2
    at = lambda rotations: half * math.log(ORIGINAL_CONTEXT / (rotations * 2 * math.pi)) / math.log(THETA)
    low, high = at(BETA_FAST), at(BETA_SLOW)
    plain = THETA ** (-torch.arange(half, dtype=torch.float64) / half)
    ramp = ((torch.arange(half, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    return (1 - ramp) * plain + ramp * plain / FACTOR, 0.1 * math.log(FACTOR) + 1


def rope_tables(head_dim, positions, device):
    """cos and sin, float32 [positions, head_dim / 2]."""
    frequencies, concentration = rope_frequencies(head_dim)
    angle = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies.float()
    return (angle.cos() * concentration).to(device), (angle.sin() * concentration).to(device)


def mxfp4(weight):
    """bf16 [.., in, out] through MXFP4 along `in` and back: core/mxfp4_nvfp4.cpp's rule. Gradients pass straight
    through."""
    w = weight.float()
    blocks = w.detach().unflatten(-2, (-1, MX_BLOCK))
    amax = blocks.abs().amax(-2, keepdim=True)
    exponent = (amax.view(torch.int32) >> 23) - 2  # of float32, biased: the scale is 2^(floor(log2(amax)) - 2)
    scale = (exponent.clamp(min=1) << 23).view(torch.float32)
    y = blocks / scale
    size = y.abs()
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    decoded = (torch.round(y / step) * step).clamp(-6, 6) * scale
    return (w + (decoded.flatten(-3, -2) - w).detach()).to(weight.dtype)


def rms_norm(x, weight, dtype):
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight.to(torch.float32)).to(dtype)


def rotate(x, cos, sin, dtype):
    """x [B, S, heads, D] in halves; cos, sin [B, S, 1, D / 2]."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(dtype)


def project(h, p, shape, cos, sin):
    """q [B, S, heads, D], k and v [B, S, kv heads, D]."""
    B, S, dtype = h.shape[0], h.shape[1], h.dtype
    linear = lambda name: torch.nn.functional.linear(h, p[name + "_w"].to(dtype), p[name + "_b"].to(dtype))
    q = linear("q").view(B, S, shape.heads, shape.head_dim)
    k = linear("k").view(B, S, shape.kv_heads, shape.head_dim)
    v = linear("v").view(B, S, shape.kv_heads, shape.head_dim)
    return rotate(q, cos, sin, dtype), rotate(k, cos, sin, dtype), v


def attend(q, k, v, mask, sinks, shape):
    """q [B, S, heads, D] over k, v [B, C, kv heads, D]; mask [B, S, C]. The sink joins the denominator alone."""
    B, S, D, groups = q.shape[0], q.shape[1], shape.head_dim, shape.heads // shape.kv_heads
    queries = q.view(B, S, shape.kv_heads, groups, D).permute(0, 2, 3, 1, 4).reshape(B, shape.kv_heads, groups * S, D)
    scores = torch.matmul(queries, k.permute(0, 2, 3, 1)).view(B, shape.kv_heads, groups, S, -1).float() * D ** -0.5
    scores = scores.masked_fill(~mask[:, None, None], float("-inf"))
    sink = sinks.to(torch.float32).view(1, shape.kv_heads, groups, 1, 1)
    top = torch.maximum(scores.amax(-1, keepdim=True), sink).detach()
    weight = torch.exp(scores - top)
    weight = weight / (weight.sum(-1, keepdim=True) + torch.exp(sink - top))
    mixed = torch.matmul(weight.to(v.dtype).view(B, shape.kv_heads, groups * S, -1), v.permute(0, 2, 1, 3))
    return mixed.view(B, shape.kv_heads, groups, S, D).permute(0, 3, 1, 2, 4).reshape(B, S, shape.heads * D)


def route(h, p, top_k):
    """Weights of the experts [.., E], 0 outside the top k, ties to the lower index; and the softmax of the logits
    over all experts, for balancing."""
    z = torch.nn.functional.linear(h.float(), p["router_w"].to(torch.float32), p["router_b"].to(torch.float32))
    mine, other = z[..., :, None], z[..., None, :]
    index = torch.arange(z.shape[-1], device=z.device)
    ahead = (other > mine) | ((other == mine) & (index[None, :] < index[:, None]))
    chosen = ahead.sum(-1) < top_k
    return torch.softmax(z.masked_fill(~chosen, float("-inf")), -1), chosen, torch.softmax(z, -1)


def experts(h, weights, p, w1, w2):
    """All experts in two products; w1 [E, H, 2I] and w2 [E, I, H] decoded, weights [.., E]. Scaling an expert's
    output equals scaling the input of its down projection."""
    E, H, width = w1.shape
    dtype = h.dtype
    up = torch.matmul(h, w1.to(dtype).permute(1, 0, 2).reshape(H, E * width)).float()
    up = (up + p["w1_b"].to(torch.float32).reshape(-1)).unflatten(-1, (E, width // 2, 2))
    gate, linear = up[..., 0].clamp(max=LIMIT), up[..., 1].clamp(-LIMIT, LIMIT)
    active = gate * torch.sigmoid(ALPHA * gate) * (linear + 1) * weights[..., None]
    out = torch.matmul(active.to(dtype).flatten(-2), w2.to(dtype).reshape(-1, H)).float()
    return out + torch.matmul(weights, p["w2_b"].to(torch.float32))


def mlp(x, p, w1, w2, shape, dtype):
    h = rms_norm(x, p["mlp_norm"], dtype)
    weights, chosen, likely = route(h, p, shape.top_k)
    return x + experts(h, weights, p, w1, w2), chosen, likely


def attention_out(x, mixed, p):
    return x + torch.nn.functional.linear(mixed, p["o_w"].to(mixed.dtype), p["o_b"].to(mixed.dtype)).float()


def block(x, cos, sin, mask, valid, p, w1, w2, shape, dtype):
    """One layer on x, float32 [B, S, H]. Also the balancing loss (Switch Transformers, section 2.2) and the experts'
    shares of the choices, both over valid [B, S] tokens."""
    h = rms_norm(x, p["attn_norm"], dtype)
    q, k, v = project(h, p, shape, cos, sin)
    x = attention_out(x, attend(q, k, v, mask, p["sinks"], shape), p)
    x, chosen, likely = mlp(x, p, w1, w2, shape, dtype)
    weight = valid.float()[..., None] / valid.sum().clamp(min=1)
    load = (chosen * weight).sum((0, 1)) / shape.top_k
    return x, shape.experts * (load.detach() * (likely * weight).sum((0, 1))).sum(), load


def embed(tokens, p):
    """float32, so that the gradients of a token that occurs thousands of times are summed in float32."""
    return torch.nn.functional.embedding(tokens, p["embedding"].float())


def logits_of(x, p, dtype):
    return torch.nn.functional.linear(rms_norm(x, p["norm"], dtype), p["unembedding"].to(dtype)).float()


def loss_of(x, p, labels, counted, dtype):
    logits = logits_of(x, p, dtype)
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return (losses * counted.flatten()).sum() / counted.sum().clamp(min=1)


class TinyGptOss(torch.nn.Module):
    def __init__(self, shape, seed):
        super().__init__()
        self.shape = shape
        generator = torch.Generator().manual_seed(seed)
        L, H, I, E = shape.layers, shape.hidden, shape.intermediate, shape.experts
        q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        normal = lambda *extents, std: torch.nn.Parameter(torch.randn(extents, generator=generator) * std)
        zeros = lambda *extents: torch.nn.Parameter(torch.zeros(extents))
        ones = lambda *extents: torch.nn.Parameter(torch.ones(extents))
        into_stream = (2 * L) ** -0.5
        self.layers = torch.nn.ParameterDict({
            "attn_norm": ones(L, H), "mlp_norm": ones(L, H),
            "q_w": normal(L, q, H, std=H ** -0.5), "q_b": zeros(L, q),
            "k_w": normal(L, kv, H, std=H ** -0.5), "k_b": zeros(L, kv),
            "v_w": normal(L, kv, H, std=H ** -0.5), "v_b": zeros(L, kv),
            "o_w": normal(L, H, q, std=q ** -0.5 * into_stream), "o_b": zeros(L, H),
            "sinks": zeros(L, shape.heads),
            "router_w": normal(L, E, H, std=0.02), "router_b": zeros(L, E),
            "w1": normal(L, E, H, 2 * I, std=H ** -0.5), "w1_b": zeros(L, E, 2 * I),
            "w2": normal(L, E, I, H, std=I ** -0.5 * into_stream), "w2_b": zeros(L, E, H)})
        self.top = torch.nn.ParameterDict({
            "embedding": normal(shape.vocab, H, std=0.3), "unembedding": normal(shape.vocab, H, std=0.02),
            "norm": ones(H)})

    # Rounds parameters to bf16, as in the checkpoint; gradients go to the float32 ones. Not inside torch.compile,
    # which removes a rounding that is undone at once.

    def layer_parameters(self):
        split = {name: value.bfloat16().unbind(0) for name, value in self.layers.items() if name not in ("w1", "w2")}
        return [{name: value[l] for name, value in split.items()} for l in range(self.shape.layers)]

    def expert_weights(self, quantised):
        decode = mxfp4 if quantised else lambda w: w
        return tuple(decode(self.layers[name].bfloat16()).unbind(0) for name in ("w1", "w2"))

    def top_parameters(self):
        return {name: value.bfloat16() for name, value in self.top.items()}


def masks(document, window):
    """Full and sliding attention inside the conversations of a row, bool [B, S, S]."""
    at = torch.arange(document.shape[1], device=document.device)
    behind = at[:, None] - at[None, :]
    full = (document[:, :, None] == document[:, None, :]) & (behind >= 0)
    return full, full & (behind < window)


def config(shape, eos, pad):
    kinds = ["sliding_attention", "full_attention"]
    return {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "attention_bias": True,
            "attention_dropout": 0.0, "vocab_size": shape.vocab, "hidden_size": shape.hidden,
            "intermediate_size": shape.intermediate, "num_hidden_layers": shape.layers, "head_dim": shape.head_dim,
            "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
            "num_local_experts": shape.experts, "num_experts_per_tok": shape.top_k, "experts_per_token": shape.top_k,
            "sliding_window": shape.window, "layer_types": [kinds[l % 2] for l in range(shape.layers)],
            "hidden_act": "silu", "rms_norm_eps": EPS, "swiglu_limit": LIMIT, "tie_word_embeddings": False,
            "initial_context_length": ORIGINAL_CONTEXT, "max_position_embeddings": int(ORIGINAL_CONTEXT * FACTOR),
            "rope_theta": THETA,
            "rope_scaling": {"rope_type": "yarn", "factor": FACTOR, "beta_fast": BETA_FAST, "beta_slow": BETA_SLOW,
                             "truncate": False, "original_max_position_embeddings": ORIGINAL_CONTEXT},
            "torch_dtype": "bfloat16", "eos_token_id": eos, "pad_token_id": pad, "initializer_range": 0.02,
            "output_router_logits": False, "router_aux_loss_coef": 0.01, "use_cache": True}


def checkpoint(model):
    """Hugging Face's un-quantised names; bf16."""
    names = {"attn_norm": "input_layernorm.weight", "mlp_norm": "post_attention_layernorm.weight",
             "sinks": "self_attn.sinks", "router_w": "mlp.router.weight", "router_b": "mlp.router.bias",
             "w1": "mlp.experts.gate_up_proj", "w1_b": "mlp.experts.gate_up_proj_bias",
             "w2": "mlp.experts.down_proj", "w2_b": "mlp.experts.down_proj_bias"}
    for part in "qkvo":
        names[part + "_w"] = f"self_attn.{part}_proj.weight"
        names[part + "_b"] = f"self_attn.{part}_proj.bias"
    tensors = {"model.embed_tokens.weight": model.top["embedding"], "lm_head.weight": model.top["unembedding"],
               "model.norm.weight": model.top["norm"]}
    for l in range(model.shape.layers):
        for name, stacked in model.layers.items():
            tensors[f"model.layers.{l}.{names[name]}"] = stacked[l]
    return {name: tensor.detach().to("cpu", torch.bfloat16).contiguous().clone() for name, tensor in tensors.items()}


def write_whole(path, write):
    part = pathlib.Path(f"{path}.part")
    write(part)
    part.chmod(0o644)
    os.replace(part, path)


def save(model, folder, eos, pad):
    from safetensors.torch import save_file
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "model.safetensors", lambda part: save_file(checkpoint(model), part, {"format": "pt"}))
    text = json.dumps(config(model.shape, eos, pad), indent=2) + "\n"
    write_whole(folder / "config.json", lambda part: part.write_text(text))
