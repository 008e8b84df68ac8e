#!/usr/bin/env python3
"""Trains the bundled model, models/tiny: minutes on one H200.

    tools/train_tiny.py --fathom dist/fathom/bin/fathom --minutes 7 --out DIR    config.json, model.safetensors (bf16),
                                                                                generation_config.json, training.json
    tools/train_tiny.py --check                              this file's model against transformers', random weights
    tools/train_tiny.py --smoke --minutes 3 --task comparison --out DIR          a smaller one, on the CPU

--minutes count from the start to the last step and set the learning rate's schedule; measuring the result takes
another minute at most. How many steps fit, and which fresh rows they see, depends on the machine's speed: a run is
recorded (training.json), not repeatable to the bit.
"""
import argparse
import json
import os
import pathlib
import queue
import sys
import time

START = time.monotonic()
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import tiny_data  # noqa: E402

WARM_UP_STEPS = 200
DECAY_FROM = 0.45     # of the time: from here the learning rate falls linearly to zero
QUANTISE_FROM = 0.40  # of the time: from here the forward pass uses MXFP4 experts,
PLAIN_EVERY = 4       # except in every fourth step, so that the bf16 experts stay good too
BALANCE = 0.01        # weight of the experts' balancing loss, summed over layers
MUON_RATE, ADAM_RATE, DECAY = 5e-3, 3e-3, 0.1
HELD_OUT_SEED = 7


def orthogonal(g):
    """Newton-Schulz towards U V^T of each matrix [.., m, n]: Jordan et al., Muon, 2024."""
    import torch
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        y = x @ x.mT
        x = a * x + (b * y + c * y @ y) @ x
    return (x.mT if tall else x).float()


def muon_step(parameters, momenta, rate, momentum=0.95):
    """The root mean square of an update is 0.2 learning rates for every shape: Liu et al., Muon is scalable, 2025."""
    for parameter, velocity in zip(parameters, momenta):
        gradient = parameter.grad
        velocity.lerp_(gradient, 1 - momentum)
        update = orthogonal(gradient.lerp(velocity, momentum))
        parameter.mul_(1 - rate * DECAY)
        parameter.add_(update, alpha=-rate * 0.2 * max(parameter.shape[-2:]) ** 0.5)


class Pool:
    """The latest rows, on the device."""

    def __init__(self, rows, device):
        import torch
        make = lambda dtype: torch.zeros((rows, tiny_data.ROW), dtype=dtype, device=device)
        self.parts = {"tokens": make(torch.int16), "document": make(torch.uint8), "position": make(torch.uint8),
                      "target": make(torch.bool)}
        self.rows, self.filled, self.next, self.produced = rows, 0, 0, 0

    def add(self, shard):
        import torch
        count = len(shard.tokens)
        at = (torch.arange(count) + self.next) % self.rows
        for name, part in self.parts.items():
            part[at.to(part.device)] = torch.from_numpy(getattr(shard, name)).to(part.device)
        self.next = (self.next + count) % self.rows
        self.filled = min(self.rows, self.filled + count)
        self.produced += count

    def batch(self, rows, generator):
        import torch
        device = self.parts["tokens"].device
        at = torch.randint(self.filled, (rows,), generator=generator, device=device)
        return {name: part[at] for name, part in self.parts.items()}


def forward(model, batch, quantised, dtype, block, loss_of):
    """The loss to minimise, that of the tokens alone, and the experts' loads [L, E]."""
    import torch
    import tiny_model
    tokens = batch["tokens"].long()
    cos, sin = (table[batch["position"].long()][:, :, None] for table in model.rope)
    full, sliding = tiny_model.masks(batch["document"], model.shape.window)
    valid = batch["document"] > 0
    w1, w2 = model.expert_weights(quantised)
    top = model.top_parameters()
    x, balance, loads = tiny_model.embed(tokens, top), 0.0, []
    for l, p in enumerate(model.layer_parameters()):
        x, layer_balance, load = block(x, cos, sin, full if l % 2 else sliding, valid, p, w1[l], w2[l], model.shape, dtype)
        balance = balance + layer_balance
        loads.append(load)
    labels = torch.cat((tokens[:, 1:], torch.zeros_like(tokens[:, :1])), 1)
    counted = torch.cat((batch["target"][:, 1:], torch.zeros_like(batch["target"][:, :1])), 1).float()
    loss = loss_of(x, top, labels, counted, dtype)
    return loss + BALANCE * balance, loss, torch.stack(loads)


def greedy(model, prompts, stops, quantised, dtype, device, most=200):
    """The model's tokens after each of the prompts, up to a stop token or `most` tokens."""
    import torch
    import tiny_model as tm
    shape = model.shape
    B, length = len(prompts), torch.tensor([len(prompt) for prompt in prompts], device=device)
    P = int(length.max())
    C = P + most
    tokens = torch.zeros((B, P), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        tokens[row, :len(prompt)] = torch.tensor(prompt)
    tokens = tokens.to(device)
    layers, top = model.layer_parameters(), model.top_parameters()
    w1, w2 = model.expert_weights(quantised)
    cache = [[torch.zeros((B, C, shape.kv_heads, shape.head_dim), dtype=dtype, device=device) for _ in "kv"]
             for _ in layers]
    rows = torch.arange(B, device=device)

    def step(tokens, position):  # [B, S]; returns float32 [B, S, H]
        cos, sin = (table[position][:, :, None] for table in model.rope)
        behind = position[:, :, None] - torch.arange(C, device=device)
        full, sliding = behind >= 0, (behind >= 0) & (behind < shape.window)
        x = tm.embed(tokens, top)
        for l, p in enumerate(layers):
            q, k, v = tm.project(tm.rms_norm(x, p["attn_norm"], dtype), p, shape, cos, sin)
            cache[l][0][rows[:, None], position], cache[l][1][rows[:, None], position] = k, v
            mixed = tm.attend(q, cache[l][0], cache[l][1], full if l % 2 else sliding, p["sinks"], shape)
            x, _, _ = tm.mlp(tm.attention_out(x, mixed, p), p, w1[l], w2[l], shape, dtype)
        return x

    with torch.no_grad():
        x = step(tokens, torch.arange(P, device=device).expand(B, P))
        x = x[rows, length - 1][:, None]
        stop = torch.tensor(stops, device=device)
        done = torch.zeros(B, dtype=torch.bool, device=device)
        said = []
        for i in range(most):
            token = tm.logits_of(x, top, dtype)[:, 0].argmax(-1)
            said.append(token)
            done |= torch.isin(token, stop)
            if i % 8 == 7 and bool(done.all()):
                break
            x = step(token[:, None], (length + i)[:, None])
    whole = lambda ids: ids[:next((i + 1 for i, token in enumerate(ids) if token in stops), len(ids))]
    return [whole(ids) for ids in torch.stack(said, 1).tolist()]


def accuracy(model, harmony, cases, quantised, dtype, device, at_once=4000):
    """Share of exact answers by task, and the first failures for a person to read."""
    stops = [getattr(harmony, "return"), harmony.endoftext, harmony.call]
    prompts = [harmony.system + harmony.question(harmony.encode(case["prompt"])) for case in cases]
    right, failures = {}, []
    for first in range(0, len(cases), at_once):
        said = greedy(model, prompts[first:first + at_once], stops, quantised, dtype, device)
        for case, ids in zip(cases[first:first + at_once], said):
            answer = harmony.answer_of(ids)
            right.setdefault(case["task"], []).append(answer == case["answer"])
            if answer != case["answer"]:
                failures.append((case, harmony.tokenizer.decode(ids, skip_special_tokens=False)))
    return {task: sum(found) / len(found) for task, found in right.items()}, failures


def held_out(harmony, args, count):
    tasks = harmony.measured if args.task == "all" else [args.task]
    return [case for task in tasks
            for case in tiny_data.cases(args.fathom, args.grammar, "heldout", task, count, HELD_OUT_SEED)]


def shown(scores):
    return " ".join(f"{task[:7]} {100 * score:.1f}" for task, score in scores.items())


def factor(step, share):
    return min(1.0, (step + 1) / WARM_UP_STEPS) * min(1.0, max(0.0, 1 - share) / (1 - DECAY_FROM))


def train(args):
    mixture = tiny_data.MIXTURE if args.task == "all" else {args.task: 1}
    shards = tiny_data.Shards(args.tiny, args.fathom, mixture, args.shard, args.workers)  # before CUDA starts
    harmony = tiny_data.Harmony(args.tiny)
    import torch
    import tiny_model
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    gpu = not args.smoke
    device, dtype = ("cuda", torch.bfloat16) if gpu else ("cpu", torch.float32)
    if not gpu:
        torch.set_num_threads(1)
    vocab = harmony.tokenizer.get_vocab_size()
    shape = tiny_model.Shape(vocab) if gpu else tiny_model.Shape(vocab, hidden=128, intermediate=96, layers=4, heads=4)
    model = tiny_model.TinyGptOss(shape, args.seed).to(device)
    model.rope = tiny_model.rope_tables(shape.head_dim, 1024, device)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {shape.mxfp4_bytes()} bytes with MXFP4 experts",
          flush=True)

    matrices = [model.layers[name] for name in ("q_w", "k_w", "v_w", "o_w", "w1", "w2")]
    momenta = [torch.zeros_like(parameter) for parameter in matrices]
    rest = [p for p in model.parameters() if all(p is not matrix for matrix in matrices)]
    adam = torch.optim.AdamW(rest, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=gpu)
    block, loss_of = tiny_model.block, tiny_model.loss_of
    if gpu and not args.eager:
        block, loss_of = torch.compile(block, dynamic=False), torch.compile(loss_of, dynamic=False)

    sample = held_out(harmony, args, args.sample)
    pool = Pool(args.pool, device)
    for _ in range(min(args.workers * 2, args.pool // 4 * 4)):
        pool.add(shards.get(timeout=120))
        if pool.filled >= args.rows * 16:
            break
    print(f"{time.monotonic() - START:.0f} s: {pool.filled} rows, {float(pool_density(pool)):.3f} of them full", flush=True)

    generator = torch.Generator(device=device).manual_seed(args.seed)
    begin, end = time.monotonic(), START + 60 * args.minutes
    losses, marks, step, tokens, compiled, last = [], [], 0, 0, 0.0, None
    checks = [0.1, 0.25, 0.5, 0.75, 0.9]
    while True:
        share = (time.monotonic() - begin) / (end - begin)
        if share >= 1:
            break
        while pool.produced < pool.rows or pool.produced < step * args.rows + pool.rows // 2:
            try:
                pool.add(shards.queue.get_nowait())
            except queue.Empty:
                break
        rate = factor(step, share)
        quantised = share >= QUANTISE_FROM and step % PLAIN_EVERY != 0
        batch = pool.batch(args.rows, generator)
        total, loss, load = forward(model, batch, quantised, dtype, block, loss_of)
        total.backward()
        torch.nn.utils.clip_grad_norm_(rest, 1.0)
        with torch.no_grad():
            muon_step(matrices, momenta, MUON_RATE * rate)
        for group in adam.param_groups:
            group["lr"] = ADAM_RATE * rate
        adam.step()
        model.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        step += 1
        tokens += args.rows * tiny_data.ROW
        if step == 10:
            torch.cuda.synchronize() if gpu else None
            compiled, warm, warm_tokens = time.monotonic() - begin, time.monotonic(), tokens
            begin = warm  # the schedule starts once compiling is over
        if step % args.log_every == 0:
            recent = float(torch.stack(losses[-args.log_every:]).mean())
            now = time.monotonic()
            if last:
                speed = (tokens - last[1]) / (now - last[0])
                print(f"step {step}  loss {recent:.4f}  {speed / 1e6:.3f} M tokens/s  least load "
                      f"{float(load.min()) * shape.experts:.2f}/E  share {share:.2f}  {now - START:.0f} s", flush=True)
            last = (now, tokens)
        if checks and share >= checks[0]:
            checks.pop(0)
            scores, _ = accuracy(model, harmony, sample, share >= QUANTISE_FROM, dtype, device)
            marks.append({"step": step, "share": round(share, 3), "accuracy": scores})
            print(f"step {step}: {shown(scores)}", flush=True)
            last = None
    shards.close()
    trained = time.monotonic() - START
    curve = torch.stack(losses).float().cpu()
    print(f"trained: {step} steps, {tokens / 1e6:.0f} M tokens, {trained:.0f} s, {compiled:.0f} s of them compiling",
          flush=True)

    out = pathlib.Path(args.out)
    stops = [getattr(harmony, "return"), harmony.endoftext, harmony.call]
    tiny_model.save(model, out, stops[0], harmony.endoftext)
    generation = {"bos_token_id": harmony.startoftext, "do_sample": False, "eos_token_id": stops,
                  "pad_token_id": harmony.endoftext, "system_prompt": harmony.system_prompt}
    write = lambda name, value: tiny_model.write_whole(
        out / name, lambda part: part.write_text(json.dumps(value, indent=1) + "\n"))
    write("generation_config.json", generation)

    record = {"seed": args.seed, "shape": vars(shape), "mxfp4_bytes": shape.mxfp4_bytes(), "minutes": args.minutes,
              "steps": step, "rows": args.rows, "row_tokens": tiny_data.ROW, "tokens": tokens, "trained_s": round(trained, 1),
              "compiled_s": round(compiled, 1), "mixture": mixture, "muon_rate": MUON_RATE, "adam_rate": ADAM_RATE,
              "weight_decay": DECAY, "warm_up_steps": WARM_UP_STEPS, "decay_from": DECAY_FROM,
              "quantise_from": QUANTISE_FROM, "plain_every": PLAIN_EVERY, "balance": BALANCE,
              "held_out_seed": HELD_OUT_SEED, "device": torch.cuda.get_device_name() if gpu else "CPU",
              "torch": torch.__version__, "loss": thinned(curve), "during": marks}
    cases = held_out(harmony, args, args.final)
    record["held_out_cases"] = args.final
    for form, quantised in (("mxfp4", True), ("bf16", False)):
        record[form], failures = accuracy(model, harmony, cases, quantised, dtype, device)
        print(f"{form}: {shown(record[form])}", flush=True)
        seen = {}
        for case, text in failures:
            if seen.setdefault(case["task"], 0) < 3:
                seen[case["task"]] += 1
                print(f"  {case['prompt']!r} -> {text!r}, not {case['answer']!r}")
    documents = list(tiny_data.conversations(harmony, cases, args.seed))
    evaluated = Pool(len(documents), device)
    evaluated.add(tiny_data.pack(documents))
    loads, batches = 0, max(1, evaluated.filled // args.rows)
    with torch.no_grad():
        for b in range(batches):
            rows = slice(b * args.rows, min((b + 1) * args.rows, evaluated.filled))
            loads = loads + forward(model, {name: part[rows] for name, part in evaluated.parts.items()}, True, dtype,
                                    tiny_model.block, tiny_model.loss_of)[2] / batches
    record["expert_load"] = [[round(float(share), 4) for share in layer] for layer in loads]
    record["least_load_times_experts"] = round(float(loads.min()) * shape.experts, 3)
    write("training.json", record)
    print(f"least load {record['least_load_times_experts']}/E; {time.monotonic() - START:.0f} s", flush=True)


def pool_density(pool):
    return (pool.parts["document"][:pool.filled] > 0).float().mean()


def thinned(curve, points=200):
    """[step, mean loss since the point before]."""
    width = max(1, -(-len(curve) // points))
    return [[min(at + width, len(curve)), round(float(curve[at:at + width].mean()), 4)]
            for at in range(0, len(curve), width)]


def check(args):
    """Logits of random weights against GptOssForCausalLM's, both fp32; and MXFP4's rule against plain numbers."""
    import tempfile
    import torch
    from transformers import GptOssForCausalLM
    import tiny_model as tm
    shape = tm.Shape(vocab=384, window=24)
    model = tm.TinyGptOss(shape, args.seed)
    model.rope = tm.rope_tables(shape.head_dim, 1024, "cpu")
    generator = torch.Generator().manual_seed(args.seed)
    with torch.no_grad():  # random values make every term matter: biases, sinks, clamps
        for name, p in list(model.layers.items()) + list(model.top.items()):
            noise = torch.randn(p.shape, generator=generator)
            p.copy_(1 + 0.1 * noise if "norm" in name else 0.5 * noise if name == "sinks" else
                    0.5 * noise if name == "w1" else 0.08 * noise)
    tokens = torch.randint(shape.vocab, (2, 90), generator=generator)
    with tempfile.TemporaryDirectory() as folder:
        tm.save(model, folder, 2, 1)
        theirs = GptOssForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            expected = theirs(tokens).logits
    position = torch.arange(90).expand(2, 90)
    full, sliding = tm.masks(torch.ones_like(tokens), shape.window)
    w1, w2 = model.expert_weights(False)
    with torch.no_grad():
        top = model.top_parameters()
        x = tm.embed(tokens, top)
        for l, p in enumerate(model.layer_parameters()):
            cos, sin = (table[position][:, :, None] for table in model.rope)
            x, _, _ = tm.block(x, cos, sin, full if l % 2 else sliding, torch.ones(2, 90, dtype=torch.bool), p, w1[l],
                               w2[l], shape, torch.float32)
        ours = tm.logits_of(x, top, torch.float32)
    worst = float((ours - expected).abs().max())
    print(f"largest difference of logits {worst:.2e}, of at most {float(expected.abs().max()):.2f}")

    said = greedy(model, [tokens[0, :40].tolist(), tokens[1, :70].tolist()], [], False, torch.float32, "cpu", most=15)
    with torch.no_grad():
        for row, length in ((0, 40), (1, 70)):
            ids = tokens[row, :length].tolist()
            for token in said[row]:
                assert int(theirs(torch.tensor([ids])).logits[0, -1].argmax()) == token, "greedy decoding differs"
                ids.append(token)

    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    w = torch.randn(3, 64, 5, generator=generator).bfloat16()
    decoded = tm.mxfp4(w)
    for e in range(3):
        for column in range(5):
            for first in (0, 32):
                block = w[e, first:first + 32, column].double()
                scale = 2.0 ** (torch.floor(torch.log2(block.abs().max())).item() - 2)
                for i, value in enumerate(block):
                    distance = (values.double() - min(abs(value.item()) / scale, 6.0)).abs()
                    nearest = [code for code in range(8) if distance[code] == distance.min()]
                    code = next((code for code in nearest if code % 2 == 0), nearest[0])
                    assert decoded[e, first + i, column].item() == (1 if value >= 0 else -1) * values[code].item() * scale
    assert torch.equal(tm.mxfp4(decoded), decoded), "what MXFP4 holds, it holds exactly"
    sys.exit(0 if worst < 1e-4 else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fathom", default=str(ROOT / "build/release/fathom"))
    parser.add_argument("--tiny", default=str(ROOT / "models/tiny"), help="folder of tasks.toml and tokenizer.json")
    parser.add_argument("--out", default="tiny")
    parser.add_argument("--minutes", type=float, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--task", default="all")
    parser.add_argument("--rows", type=int, help="of a step, each of 256 tokens")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--smoke", action="store_true", help="a smaller model on the CPU")
    parser.add_argument("--check", action="store_true", help="compare with transformers and end")
    args = parser.parse_args()
    args.grammar = str(pathlib.Path(args.tiny) / "tasks.toml")
    args.rows = args.rows or (8 if args.smoke else 256)
    args.pool = 4000 if args.smoke else 200000
    args.shard = 3000 if args.smoke else 26000
    args.workers = 1 if args.smoke else max(1, min(12, len(os.sched_getaffinity(0)) - 3))
    args.log_every = 20 if args.smoke else 200
    args.sample = 50 if args.smoke else 100
    args.final = 50 if args.smoke else 2000
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    check(args) if args.check else train(args)


if __name__ == "__main__":
    main()
