#!/usr/bin/env python3
"""Trains the drafter of the bundled model, models/tiny/drafter: 15 minutes on one CPU core.

    tools/train_drafter.py --fathom build/release/fathom --minutes 14 --out DIR    config.json, model.safetensors (bf16),
                                                                                  training.json
    tools/train_drafter.py --check --out DIR     drafts of DIR's weights for one conversation, as JSON: the reference of
                                                 src/engine/eagle_proposer_test.cpp

The shape is EAGLE-3's (Li et al., 2025): one decoder layer reads the target's residual stream after three of its layers
and the embedding of the token sampled after it, and predicts the token after that; from the second drafted token on it
reads its own output in place of the target's. Embedding and unembedding are the target's, frozen. It is trained as it is
used: STEPS tokens are drafted from each position, each from the drafter's own outputs, and each is compared with the
target's distribution there. The text is that which trained the target, whose answers it gives by heart. --minutes are
of this process's CPU time, so that a shared core changes how long it takes and not what comes out.
"""
import argparse
import json
import math
import pathlib
import sys
import time

START = time.monotonic()
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import tiny_data  # noqa: E402

STEPS, STEP_WEIGHT = 3, 0.8   # drafted tokens from each position, and the weight of one against the one before
REPLAYS = 2                   # times that earlier rows are used again beside new ones: the target's pass costs most
TAPS = (1, 3, 5)              # the target's layers, from 0, whose outputs are read
INTERMEDIATE, THETA, EPS = 768, 10000.0, 1e-5
MUON_RATE, ADAM_RATE = 1e-2, 3e-3
WARM_UP_STEPS, DECAY_FROM = 20, 0.4
HELD_OUT_SEED = 7


def load_target(folder):
    """The bundled model, its experts decoded from MXFP4."""
    import torch
    import tiny_model as tm
    from safetensors.torch import load_file
    config = json.loads((folder / "config.json").read_text())
    shape = tm.Shape(config["vocab_size"], config["hidden_size"], config["intermediate_size"],
                     config["num_hidden_layers"], config["num_attention_heads"], config["num_key_value_heads"],
                     config["head_dim"], config["num_local_experts"], config["num_experts_per_tok"],
                     config["sliding_window"])
    tensors = load_file(str(folder / "model.safetensors"))
    values = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])

    def experts(name):  # [E, in, out]
        blocks, scales = tensors[name + "_blocks"], tensors[name + "_scales"]
        codes = torch.stack((blocks & 15, blocks >> 4), -1).flatten(-2).long()
        decoded = values[codes] * torch.exp2(scales.float() - 127)[..., None]
        return decoded.flatten(-2).transpose(1, 2).contiguous()

    layers = []
    for l in range(shape.layers):
        at = lambda name: tensors[f"model.layers.{l}.{name}"].float()
        p = {"attn_norm": at("input_layernorm.weight"), "mlp_norm": at("post_attention_layernorm.weight"),
             "sinks": at("self_attn.sinks"), "router_w": at("mlp.router.weight"), "router_b": at("mlp.router.bias"),
             "w1": experts(f"model.layers.{l}.mlp.experts.gate_up_proj"),
             "w2": experts(f"model.layers.{l}.mlp.experts.down_proj"),
             "w1_b": at("mlp.experts.gate_up_proj_bias"), "w2_b": at("mlp.experts.down_proj_bias")}
        for part in "qkvo":
            p[part + "_w"], p[part + "_b"] = at(f"self_attn.{part}_proj.weight"), at(f"self_attn.{part}_proj.bias")
        layers.append(p)
    top = {"embedding": tensors["model.embed_tokens.weight"].float(), "unembedding": tensors["lm_head.weight"].float(),
           "norm": tensors["model.norm.weight"].float()}
    return shape, layers, top


def sparse_experts(h, weights, chosen, p):
    """tiny_model.experts(), each expert on its own tokens only."""
    import torch
    import tiny_model as tm
    flat, weights, chosen = h.flatten(0, 1), weights.flatten(0, 1), chosen.flatten(0, 1)
    out = weights @ p["w2_b"]
    for e in range(weights.shape[-1]):
        rows = chosen[:, e].nonzero()[:, 0]
        up = (flat[rows] @ p["w1"][e] + p["w1_b"][e]).unflatten(-1, (-1, 2))
        gate, linear = up[..., 0].clamp(max=tm.LIMIT), up[..., 1].clamp(-tm.LIMIT, tm.LIMIT)
        active = gate * torch.sigmoid(tm.ALPHA * gate) * (linear + 1) * weights[rows, e, None]
        out.index_add_(0, rows, active @ p["w2"][e])
    return out.view_as(h)


def target_pass(shape, layers, top, rope, batch):
    """Features [B, S, taps H] and logits [B, S, V] of the target."""
    import torch
    import tiny_model as tm
    with torch.no_grad():
        cos, sin = (table[batch["position"].long()][:, :, None] for table in rope)
        full, sliding = tm.masks(batch["document"], shape.window)
        x, features = top["embedding"][batch["tokens"].long()], []
        for l, p in enumerate(layers):
            q, k, v = tm.project(tm.rms_norm(x, p["attn_norm"], torch.float32), p, shape, cos, sin)
            x = tm.attention_out(x, tm.attend(q, k, v, full if l % 2 else sliding, p["sinks"], shape), p)
            h = tm.rms_norm(x, p["mlp_norm"], torch.float32)
            weights, chosen, _ = tm.route(h, p, shape.top_k)
            x = x + sparse_experts(h, weights, chosen, p)
            if l in TAPS:
                features.append(x)
        logits = tm.rms_norm(x, top["norm"], torch.float32) @ top["unembedding"].T
        return torch.cat(features, -1), logits


def muon_step(parameters, momenta, rate, momentum=0.95):
    """train_tiny.muon_step() without weight decay, in float32: CPUs multiply bf16 slowly."""
    a, b, c = 3.4445, -4.7750, 2.0315
    for parameter, velocity in zip(parameters, momenta):
        velocity.lerp_(parameter.grad, 1 - momentum)
        x = parameter.grad.lerp(velocity, momentum)
        tall = x.shape[0] > x.shape[1]
        x = x.T if tall else x
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            y = x @ x.T
            x = a * x + (b * y + c * y @ y) @ x
        parameter.add_(x.T if tall else x, alpha=-rate * 0.2 * max(parameter.shape) ** 0.5)


class Drafter:
    """Parameters under the names of published EAGLE-3 checkpoints."""

    def __init__(self, shape, top, seed):
        import torch
        self.shape, self.top = shape, top
        generator = torch.Generator().manual_seed(seed)
        H, q, kv = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        normal = lambda out, width, gain=1.0: torch.randn(out, width, generator=generator) * gain * width ** -0.5
        fc = normal(H, len(TAPS) * H, 0.3)
        fc[:, -H:] += torch.eye(H)  # at first, the target's last residual passes
        ones = lambda: torch.ones(H)
        self.parameters = {
            "fc.weight": fc, "midlayer.input_layernorm.weight": ones(), "midlayer.hidden_norm.weight": ones(),
            "midlayer.self_attn.q_proj.weight": normal(q, 2 * H), "midlayer.self_attn.k_proj.weight": normal(kv, 2 * H),
            "midlayer.self_attn.v_proj.weight": normal(kv, 2 * H),
            "midlayer.self_attn.o_proj.weight": normal(H, q, 0.5),
            "midlayer.post_attention_layernorm.weight": ones(),
            "midlayer.mlp.gate_proj.weight": normal(INTERMEDIATE, H), "midlayer.mlp.up_proj.weight": normal(INTERMEDIATE, H),
            "midlayer.mlp.down_proj.weight": normal(H, INTERMEDIATE, 0.5), "norm.weight": top["norm"].clone()}
        for parameter in self.parameters.values():
            parameter.requires_grad_(True)

    def project_taps(self, features):
        """g [B, S, H]: each tap with a root mean square of 1, then one matrix."""
        import torch
        H = self.shape.hidden
        normed = [tap * torch.rsqrt(tap.square().mean(-1, keepdim=True) + EPS) for tap in features.split(H, -1)]
        return torch.cat(normed, -1) @ self.parameters["fc.weight"].T

    def qkv(self, g, embedded, cos, sin):
        import torch
        import tiny_model as tm
        p, s = self.parameters, self.shape
        z = torch.cat((tm.rms_norm(embedded, p["midlayer.input_layernorm.weight"], torch.float32),
                       tm.rms_norm(g, p["midlayer.hidden_norm.weight"], torch.float32)), -1)
        heads = lambda name, count: (z @ p[f"midlayer.self_attn.{name}_proj.weight"].T).unflatten(-1, (count, s.head_dim))
        rotate = lambda x: tm.rotate(x, cos, sin, torch.float32)
        return rotate(heads("q", s.heads)), rotate(heads("k", s.kv_heads)), heads("v", s.kv_heads)

    def mlp(self, x):
        import torch
        import tiny_model as tm
        p = self.parameters
        n = tm.rms_norm(x, p["midlayer.post_attention_layernorm.weight"], torch.float32)
        active = torch.nn.functional.silu(n @ p["midlayer.mlp.gate_proj.weight"].T) * (n @ p["midlayer.mlp.up_proj.weight"].T)
        return x + active @ p["midlayer.mlp.down_proj.weight"].T

    def logits(self, x):
        import torch
        import tiny_model as tm
        return tm.rms_norm(x, self.parameters["norm.weight"], torch.float32) @ self.top["unembedding"].T


def rope_tables(head_dim, positions):
    import torch
    frequencies = THETA ** (-torch.arange(head_dim // 2, dtype=torch.float64) / (head_dim // 2))
    angle = (torch.arange(positions, dtype=torch.float64)[:, None] * frequencies).float()
    return angle.cos(), angle.sin()


def shifted(x, by):
    """x[:, p - by] at p, zeros before."""
    import torch
    return x if by == 0 else torch.cat((torch.zeros_like(x[:, :by]), x[:, :-by]), 1)


def attend(drafter, q, keys, values, document):
    """Queries of the j-th drafted token, j = len(keys) - 1, over what the target's features gave up to position p - j,
    and over the drafter's own keys of the drafted tokens before and of itself."""
    import torch
    s, j = drafter.shape, len(keys) - 1
    B, S, groups = q.shape[0], q.shape[1], s.heads // s.kv_heads
    at = torch.arange(S)
    same = document[:, :, None] == document[:, None, :]
    mask = same & (at[:, None] - j >= at[None, :])
    wide = lambda x: x.repeat_interleave(groups, 2)
    scores = torch.einsum("bphd,bchd->bhpc", q, wide(keys[0])) * s.head_dim ** -0.5
    scores = scores.masked_fill(~mask[:, None], float("-inf"))
    own = [torch.einsum("bphd,bphd->bhp", q, wide(shifted(keys[i], j - i))) * s.head_dim ** -0.5 for i in range(1, j + 1)]
    # A drafted position's true key at or before p - j may be of another document: then only its own keys are left.
    weight = torch.softmax(torch.cat([scores] + [o[..., None] for o in own], -1), -1)
    weight = torch.nan_to_num(weight)
    mixed = torch.einsum("bhpc,bchd->bphd", weight[..., :S], wide(values[0]))
    for i in range(1, j + 1):
        mixed = mixed + weight[..., S + i - 1].permute(0, 2, 1)[..., None] * wide(shifted(values[i], j - i))
    return mixed.reshape(B, S, -1)


def unroll(drafter, rope, batch, features, logits, steps):
    """For each drafted token: its loss at the counted positions and whether it is the target's likeliest, [N] each.
    Position p holds the features of token p; the drafter reads token p + 1 and predicts token p + 2."""
    import torch
    tokens, document = batch["tokens"].long(), batch["document"].long()
    cos, sin = (table[batch["position"].long()][:, :, None] for table in rope)
    ahead = lambda x, by: torch.cat((x[:, by:], torch.zeros_like(x[:, :by])), 1)
    embedded = drafter.top["embedding"][ahead(tokens, 1)]
    wanted = torch.log_softmax(ahead(logits, 1), -1)
    counted = ahead(batch["target"].long(), 2).bool() & (ahead(document, 2) == document) & (document > 0)
    g, keys, values, losses, right = drafter.project_taps(features), [], [], [], []
    for j in range(steps):
        q, k, v = drafter.qkv(g, embedded, cos, sin)
        keys.append(k), values.append(v)
        x = drafter.mlp(g + attend(drafter, q, keys, values, document) @
                        drafter.parameters["midlayer.self_attn.o_proj.weight"].T)
        use = counted & (shifted(document, j) == document)
        use[:, :j] = False
        said = torch.log_softmax(drafter.logits(x[use]), -1)
        losses.append(-(wanted[use].exp() * said).sum(-1))
        right.append((use, said.detach().argmax(-1) == wanted[use].argmax(-1)))
        g = shifted(x, 1)
    return losses, right


def measure(drafter, rope, target, batches, steps):
    """Teacher-forced shares of the j-th drafted token that are right where all before it are, and the tokens a step
    that follow from them."""
    import torch
    tries, hits = [0] * steps, [0] * steps
    with torch.no_grad():
        for batch in batches:
            features, logits = target(batch)
            _, right = unroll(drafter, rope, batch, features, logits, steps)
            alive = None  # by first position: all drafted tokens so far are right
            for j, (use, good) in enumerate(right):
                grid = torch.zeros(use.shape, dtype=torch.bool)
                grid[use] = good
                good, use = grid[:, j:], use[:, j:]
                start = (use if alive is None else use & alive[:, :use.shape[1]])
                tries[j] += int(start.sum())
                alive = start & good
                hits[j] += int(alive.sum())
    shares = [hit / max(1, tried) for hit, tried in zip(hits, tries)]
    survival, tokens = 1.0, 1.0
    for share in shares:
        survival *= share
        tokens += survival
    return shares, tokens


def to_batch(rows, at):
    import torch
    return {name: torch.from_numpy(getattr(rows, name)[at]) for name in ("tokens", "document", "position", "target")}


def held_out_batches(harmony, args, count):
    made = [case for task in harmony.measured
            for case in tiny_data.cases(args.fathom, args.grammar, "heldout", task, count, HELD_OUT_SEED)]
    rows = tiny_data.pack(list(tiny_data.conversations(harmony, made, args.seed)))
    return [to_batch(rows, slice(at, at + 16)) for at in range(0, len(rows.tokens), 16)]


def save(drafter, folder, record):
    import torch
    import tiny_model
    from safetensors.torch import save_file
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: p.detach().to(torch.bfloat16).contiguous() for name, p in drafter.parameters.items()}
    tiny_model.write_whole(folder / "model.safetensors", lambda part: save_file(tensors, str(part), {"format": "pt"}))
    s = drafter.shape
    config = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": s.hidden,
              "intermediate_size": INTERMEDIATE, "num_attention_heads": s.heads, "num_key_value_heads": s.kv_heads,
              "head_dim": s.head_dim, "num_hidden_layers": 1, "rms_norm_eps": EPS, "rope_theta": THETA,
              "vocab_size": s.vocab, "draft_vocab_size": s.vocab, "hidden_act": "silu", "torch_dtype": "bfloat16",
              "norm_before_fc": True, "eagle_aux_hidden_state_layer_ids": list(TAPS)}
    write = lambda name, value: tiny_model.write_whole(folder / name, lambda part: part.write_text(json.dumps(value, indent=1) + "\n"))
    write("config.json", config)
    if record:
        write("training.json", record)


def train(args):
    shards = tiny_data.Shards(args.tiny, args.fathom, tiny_data.MIXTURE, args.shard, 1)
    harmony = tiny_data.Harmony(args.tiny)
    import torch
    import tiny_model
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    shape, layers, top = load_target(args.tiny)
    target_rope = tiny_model.rope_tables(shape.head_dim, tiny_data.ROW, "cpu")
    target = lambda batch: target_pass(shape, layers, top, target_rope, batch)
    rope = rope_tables(shape.head_dim, tiny_data.ROW)
    drafter = Drafter(shape, top, args.seed)
    matrices = [p for name, p in drafter.parameters.items() if p.dim() == 2]
    momenta = [torch.zeros_like(p) for p in matrices]
    adam = torch.optim.AdamW([p for p in drafter.parameters.values() if p.dim() == 1], lr=ADAM_RATE, betas=(0.9, 0.95),
                             weight_decay=0.0)
    held = held_out_batches(harmony, args, args.held_out)
    order, rows, seen = [], None, []
    begin, budget = time.process_time(), 60 * args.minutes - time.process_time()
    step, tokens, curve = 0, 0, []
    while True:
        share = (time.process_time() - begin) / budget
        if share >= 1:
            break
        if step % (1 + REPLAYS) == 0:
            if len(order) < args.rows:
                rows = shards.get(timeout=600)
                order = torch.randperm(len(rows.tokens)).tolist()
            batch = to_batch(rows, [order.pop() for _ in range(args.rows)])
            seen.append((batch, *(part.bfloat16() for part in target(batch))))
            tokens += batch["tokens"].numel()
            chosen = -1
        else:
            chosen = int(torch.randint(len(seen), ()))
        batch, features, logits = seen[chosen]
        losses, right = unroll(drafter, rope, batch, features.float(), logits.float(), STEPS)
        sum(STEP_WEIGHT ** j * loss.mean() for j, loss in enumerate(losses)).backward()
        rate = min(1.0, (step + 1) / WARM_UP_STEPS) * min(1.0, max(0.0, 1 - share) / (1 - DECAY_FROM))
        with torch.no_grad():
            muon_step(matrices, momenta, MUON_RATE * rate)
        for group in adam.param_groups:
            group["lr"] = ADAM_RATE * rate
        adam.step()
        for p in drafter.parameters.values():
            p.grad = None
        curve.append(float(losses[0].detach().mean()))
        step += 1
        if step % args.log_every == 0:
            print(f"step {step}  share {share:.2f}  {time.monotonic() - START:.0f} s  loss " +
                  " ".join(f"{float(loss.mean()):.3f}" for loss in losses) +
                  "  right " + " ".join(f"{float(good.float().mean()):.3f}" for _, good in right), flush=True)
    shards.close()
    trained = time.process_time() - begin
    with torch.no_grad():  # what is saved is what is measured
        for p in drafter.parameters.values():
            p.copy_(p.to(torch.bfloat16))
    shares, per_step = measure(drafter, rope, target, held, 7)
    print(f"right where all before are: {' '.join(f'{s:.3f}' for s in shares)}; {per_step:.2f} tokens a step", flush=True)
    width = max(1, len(curve) // 100)
    save(drafter, args.out, {
        "seed": args.seed, "steps": step, "rows": args.rows, "new_tokens": tokens, "trained_cpu_s": round(trained, 1), "replays": REPLAYS,
        "threads": args.threads, "unrolled": STEPS, "step_weight": STEP_WEIGHT, "muon_rate": MUON_RATE,
        "adam_rate": ADAM_RATE, "device": "CPU", "torch": torch.__version__,
        "loss": [[at + width, round(sum(curve[at:at + width]) / len(curve[at:at + width]), 4)]
                 for at in range(0, len(curve), width)],
        "held_out_cases": args.held_out, "right_given_right": [round(s, 4) for s in shares],
        "tokens_a_step": round(per_step, 3)})


def check(args):
    """Greedy drafts after each prefix of one held-out conversation, by the trainer's own code."""
    import torch
    import tiny_model
    from safetensors.torch import load_file
    harmony = tiny_data.Harmony(args.tiny)
    torch.set_num_threads(args.threads)
    shape, layers, top = load_target(args.tiny)
    drafter = Drafter(shape, top, args.seed)
    drafter.parameters = {name: t.float() for name, t in load_file(str(args.out / "model.safetensors")).items()}
    batch = held_out_batches(harmony, args, 1)[0]
    first = int((batch["document"][0] == 1).sum())
    batch = {name: part[:1, :first] for name, part in batch.items()}
    target_rope = tiny_model.rope_tables(shape.head_dim, tiny_data.ROW, "cpu")
    features, logits = target_pass(shape, layers, top, target_rope, batch)
    rope = rope_tables(shape.head_dim, tiny_data.ROW)
    with torch.no_grad():
        drafts = []
        for length in range(2, first):
            part = {name: p[:, :length] for name, p in batch.items()}
            drafts.append(draft(drafter, rope, part, features[:, :length - 1], 4))
    print(json.dumps({"tokens": batch["tokens"][0].tolist(), "drafts": drafts}))


def draft(drafter, rope, batch, features, count):
    """`count` greedy tokens after the tokens of a batch of one, whose features lack the last position's."""
    import torch
    tokens = batch["tokens"][0].long().tolist()
    keys, values, drafted = [], [], []
    g = drafter.project_taps(features)
    at = torch.arange(len(tokens) - 1)
    for _ in range(count):
        read = torch.tensor(tokens[int(at[0]) + 1:])[None]
        cos, sin = (table[at][None, :, None] for table in rope)
        q, k, v = drafter.qkv(g, drafter.top["embedding"][read], cos, sin)
        keys.append(k), values.append(v)
        k, v = torch.cat(keys, 1), torch.cat(values, 1)
        groups = drafter.shape.heads // drafter.shape.kv_heads
        scores = torch.einsum("bphd,bchd->bhpc", q, k.repeat_interleave(groups, 2)) * drafter.shape.head_dim ** -0.5
        scores = scores.masked_fill(at[:, None] < torch.arange(k.shape[1])[None, :], float("-inf"))
        mixed = torch.einsum("bhpc,bchd->bphd", torch.softmax(scores, -1), v.repeat_interleave(groups, 2)).flatten(2)
        x = drafter.mlp(g + mixed @ drafter.parameters["midlayer.self_attn.o_proj.weight"].T)[:, -1:]
        drafted.append(int(drafter.logits(x)[0, 0].argmax()))
        tokens.append(drafted[-1])
        g, at = x, at[-1:] + 1
    return drafted


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fathom", default=str(ROOT / "build/release/fathom"))
    parser.add_argument("--tiny", type=pathlib.Path, default=ROOT / "models/tiny", help="the target's folder")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("drafter"))
    parser.add_argument("--minutes", type=float, default=14)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, default=4, help="of a step, each of 256 tokens")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--held-out", type=int, default=40, help="cases of each task that are measured at the end")
    parser.add_argument("--check", action="store_true", help="print drafts of --out's weights and end")
    args = parser.parse_args()
    args.grammar, args.shard, args.log_every = str(args.tiny / "tasks.toml"), 1000, 20
    check(args) if args.check else train(args)


if __name__ == "__main__":
    main()
