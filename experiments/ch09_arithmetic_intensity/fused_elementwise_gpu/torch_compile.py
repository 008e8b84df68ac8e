"""The two functions as PyTorch runs them when torch.compile has fused them, which it does by way of Triton."""
import torch
import torch._inductor.config

torch._inductor.config.compile_threads = 1  # here, not in processes that would outlive this one


def root_of_sine(x, out):
    out.copy_(torch.sqrt(torch.sin(x)))


MODE = "max-autotune-no-cudagraphs"
for_any_length = torch.compile(root_of_sine, fullgraph=True, dynamic=True)
for_this_length = torch.compile(root_of_sine, fullgraph=True, dynamic=False, mode=MODE)


def library():
    return f"torch {torch.__version__}: torch.compile(fullgraph=True, dynamic=False, mode={MODE})"


def bind(p):
    if p.x.numel() == 0:
        return lambda: None
    compiled = for_this_length if p.x.numel() >= 1 << 20 else for_any_length  # check points share one kernel
    return lambda: compiled(p.x, p.out)
