// Coalesced accesses of any width move the same sectors. What width changes is how many bytes are in flight:
// a multiprocessor holds 2,048 threads, and memory answers after some 700 ns.
#include "lab/experiment.h"

#include "copy.h"

namespace fathom::lab::copy_vectorized {

Copy::Copy(const Point& at, Arena& arena)
    : in(arena.input<float>({at["n"]}, Uniform{-1, 1})), out(arena.output<float>({at["n"]})) {}

Cost Copy::cost() const { return {.read = in.bytes(), .written = out.bytes()}; }

double Copy::expected(int64_t i) const { return in(i); }

namespace {

const Experiment<Copy> copy{
    .question =
        "How wide must an access be, and how many must a thread have in flight, to copy at DRAM's rate?",
    .limit = Limit::memory,
    // 1 GiB to 1 GiB.
    .axes     = {{"n", {1 << 28}}},
    .check_at = {{"n", {0,   1,    2,    3,    4,    5,    7,    8,    9,    255,  256,  257,    511,
                        513, 1023, 1024, 1025, 2047, 2048, 2049, 4091, 4095, 4096, 4097, 100003, 131072}}},
    .variants =
        {
            {.id         = "scalar",
             .launch     = on_gpu(scalar),
             .techniques = {},
             .idea       = "a float a thread: 8 KiB in flight on each multiprocessor",
             .prediction = predict::share(0.72)},
            {.id         = "vector2",
             .launch     = on_gpu(vector2),
             .techniques = {"coalescing", "vectorization"},
             .idea       = "8 bytes a thread: 16 KiB in flight",
             .prediction = predict::share(0.95)},
            {.id         = "vector4",
             .launch     = on_gpu(vector4),
             .techniques = {"coalescing", "vectorization"},
             .idea       = "16 bytes a thread: 32 KiB in flight",
             .prediction = predict::share_at_least(0.97)},
            {.id         = "several",
             .launch     = on_gpu(several),
             .techniques = {"coalescing", "vectorization"},
             .idea = "four loads of 16 bytes in each thread before its first store; a quarter of the blocks",
             .prediction = predict::share_at_least(0.98)},
            {.id         = "streaming",
             .launch     = on_gpu(streaming),
             .techniques = {"coalescing", "vectorization", "cache_hints"},
             .idea       = "the same with evict-first loads and stores",
             .prediction = predict::share_at_least(0.98)},
            {.id         = "vector8",
             .launch     = on_gpu(vector8),
             .techniques = {"coalescing", "vectorization"},
             .idea       = "32 bytes a thread: one instruction each way on Blackwell, two on older GPUs",
             .prediction = predict::share(0.9)},
            {.id         = "cuda_memcpy",
             .launch     = on_gpu(cuda_memcpy),
             .idea       = "cudaMemcpyAsync, device to device",
             .prediction = predict::share(0.97),
             .kind       = Kind::library},
        },
    .backend = Backend::cuda,
    .catalog = {"memory-008", "memory-009"},
};
FATHOM_REGISTER(copy);

}  // namespace
}  // namespace fathom::lab::copy_vectorized
