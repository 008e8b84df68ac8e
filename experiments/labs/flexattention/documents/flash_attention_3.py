"""FlashAttention 3 (Shah et al., 2024) as vLLM carries it. It has no mask of documents: each is a sequence of a ragged
batch, so no block lies across a document's edge.
"""
import math

import torch
import vllm
from vllm.vllm_flash_attn import fa_version_unsupported_reason, flash_attn_varlen_func


def library():
    return f"FlashAttention 3 (vllm {vllm.__version__}, torch {torch.__version__}): varlen, fa_version=3, num_splits=0"


def bind(p):
    why_not = fa_version_unsupported_reason(3)
    if why_not:
        raise Missing("needs_library", why_not)  # noqa: F821  (the runner's)
    tokens, _, size = p.q.shape
    if tokens == 0:
        return lambda: None
    documents = int(p.documents)
    # packed_documents.cpp, begins(): the inputs are not there yet.
    bounds = [math.floor(tokens * (n / documents) ** 1.5 + 0.5) for n in range(documents + 1)]
    longest = max(end - begin for begin, end in zip(bounds, bounds[1:]))
    bounds = torch.tensor(bounds, dtype=torch.int32, device="cuda")

    def call():
        _, lse = flash_attn_varlen_func(p.q, p.k, p.v, max_seqlen_q=longest, cu_seqlens_q=bounds,
                                        max_seqlen_k=longest, cu_seqlens_k=bounds, softmax_scale=size**-0.5,
                                        causal=True, out=p.out, fa_version=3, return_softmax_lse=True)
        p.lse.copy_(lse)

    return call
