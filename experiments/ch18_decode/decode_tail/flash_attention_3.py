"""FlashAttention 3 (Shah et al., 2024) as vLLM carries it, over pages of 64 positions, one query a sequence.

It takes pages as [pages, 64, heads, dimensions] with any strides, so the problem's are passed as they lie.
"""
import torch
import vllm
from vllm.vllm_flash_attn import fa_version_unsupported_reason, flash_attn_varlen_func


def library():
    return f"FlashAttention 3 (vllm {vllm.__version__}, torch {torch.__version__}): varlen, paged, fa_version=3, num_splits=0"


def bind(p):
    why_not = fa_version_unsupported_reason(3)
    if why_not:
        raise Missing("needs_library", why_not)  # noqa: F821  (the runner's)
    sequences, _, dimensions = p.q.shape
    if sequences == 0:
        return lambda: None
    if p.k.shape[0] == 0:
        return p.out.zero_
    keys, values = p.k.transpose(1, 2), p.v.transpose(1, 2)
    bounds = torch.arange(sequences + 1, dtype=torch.int32, device="cuda")
    return lambda: flash_attn_varlen_func(p.q, keys, values, max_seqlen_q=1, cu_seqlens_q=bounds,
                                          max_seqlen_k=int(p.longest), seqused_k=p.contexts, block_table=p.pages,
                                          softmax_scale=dimensions**-0.5, causal=True, out=p.out, fa_version=3)
