"""FlashAttention 3 (Shah et al., 2024) as vLLM carries it, with sinks and a window.

It reads keys and values as rows, and the engine's pages are swizzled; so they are gathered first, as for cuDNN:
4 KiB a token, some 3 % of the time at 2,048 tokens. It takes sinks in bf16, in which those of the problem are exact.
"""
import torch
import triton
import triton.language as tl
import vllm
from vllm.vllm_flash_attn import fa_version_unsupported_reason, flash_attn_varlen_func

HEADS, KV_HEADS, DIM, PAGE = 64, 8, 64, 64
WORDS = DIM * 2 // 8  # of 8 bytes in a row


@triton.jit
def gather_rows(tiles, pages, keys, values, tokens, sinks, sinks_bf16,
                KV_HEADS: tl.constexpr, PAGE: tl.constexpr, WORDS: tl.constexpr, HEADS: tl.constexpr):
    """A program copies a page of a head. The 16-byte piece c of row r lies at c ^ (r % 8)."""
    page, head = tl.program_id(0), tl.program_id(1)
    row, word = tl.arange(0, PAGE)[:, None], tl.arange(0, WORDS)[None, :]
    first = (tl.load(pages + page).to(tl.int64) * KV_HEADS + head) * (2 * PAGE * WORDS)
    source = tiles + first + row * WORDS + ((word // 2) ^ (row % 8)) * 2 + word % 2
    token = page * PAGE + row
    to, inside = (token * KV_HEADS + head) * WORDS + word, token < tokens
    tl.store(keys + to, tl.load(source), mask=inside)
    tl.store(values + to, tl.load(source + PAGE * WORDS), mask=inside)
    if (page == 0) & (head == 0):
        each = tl.arange(0, HEADS)
        tl.store(sinks_bf16 + each, tl.load(sinks + each).to(tl.bfloat16))


def library():
    return f"FlashAttention 3 (vllm {vllm.__version__}, torch {torch.__version__}): varlen, fa_version=3, num_splits=0"


def bind(p):
    why_not = fa_version_unsupported_reason(3)
    if why_not:
        raise Missing("needs_library", why_not)  # noqa: F821  (the runner's)
    tokens, window = p.q.shape[0], int(p.window)
    if tokens == 0:
        return lambda: None
    keys, values = torch.empty(2, tokens, KV_HEADS, DIM, dtype=torch.bfloat16, device="cuda")
    sinks = torch.empty(HEADS, dtype=torch.bfloat16, device="cuda")
    tiles, key_words, value_words = (x.view(torch.int64) for x in (p.tiles, keys, values))
    bounds = torch.tensor([0, tokens], dtype=torch.int32, device="cuda")
    grid = (triton.cdiv(tokens, PAGE), KV_HEADS)

    def call():
        gather_rows[grid](tiles, p.pages, key_words, value_words, tokens, p.sinks, sinks,
                          KV_HEADS=KV_HEADS, PAGE=PAGE, WORDS=WORDS, HEADS=HEADS)
        flash_attn_varlen_func(p.q, keys, values, max_seqlen_q=tokens, cu_seqlens_q=bounds, max_seqlen_k=tokens,
                               cu_seqlens_k=bounds, softmax_scale=DIM**-0.5, causal=True,
                               window_size=(window - 1, 0) if window else None, out=p.out, fa_version=3, s_aux=sinks)

    return call
