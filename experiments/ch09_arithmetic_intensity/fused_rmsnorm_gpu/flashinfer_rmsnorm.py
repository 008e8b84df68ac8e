"""RMSNorm of FlashInfer, as serving engines call it."""
import flashinfer
import torch


def library():
    return f"FlashInfer {flashinfer.__version__} (torch {torch.__version__}): flashinfer.norm.rmsnorm"


def bind(p):
    if p.x.shape[0] == 0:
        return lambda: None
    return lambda: flashinfer.norm.rmsnorm(p.x, p.weight, p.epsilon, out=p.y)
