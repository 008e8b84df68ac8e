"""FlashMLA (DeepSeek, 2025) as vLLM carries it: dense decoding over pages of 64 latents.

Its schedule, which depends on the contexts alone, is computed by the first call and used again, as the layers of a
model do.
"""
import torch
import vllm
from vllm.third_party.flashmla.flash_mla_interface import flash_mla_with_kvcache, get_mla_metadata


def library():
    return f"FlashMLA (vllm {vllm.__version__}, torch {torch.__version__}): flash_mla_with_kvcache, dense"


def bind(p):
    sequences, heads, _ = p.q.shape
    if sequences == 0:
        return lambda: None
    if p.latent.shape[0] == 0:
        return p.out.zero_
    q, cache, out = p.q.unsqueeze(1), p.latent.unsqueeze(2), p.out.unsqueeze(1)
    schedule, _ = get_mla_metadata()
    return lambda: flash_mla_with_kvcache(q, cache, p.pages, p.contexts, 512, schedule, softmax_scale=p.scale,
                                          causal=False, out=out)
