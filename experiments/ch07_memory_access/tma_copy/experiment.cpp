// A copy kernel moves every 16 bytes through the registers of some thread, and needs tens of thousands of
// threads to keep memory busy. Hopper's TMA moves kilobytes by one instruction of one thread. Is a copy with
// 264 threads on the whole GPU as fast?
#include "lab/experiment.h"

#include "copy.h"

namespace fathom::lab::tma_copy {

Copy::Copy(const Point& at, Arena& arena)
    : in(arena.input<float>({at["n"]}, Uniform{-1, 1})), out(arena.output<float>({at["n"]})) {}

Cost Copy::cost() const { return {.read = in.bytes(), .written = out.bytes()}; }

double Copy::expected(int64_t i) const { return in(i); }

namespace {

const Experiment<Copy> copy{
    .question = "Can one thread on each multiprocessor copy as fast as thousands, through TMA bulk copies?",
    .limit    = Limit::memory,
    .axes     = {{"n", {int64_t{1} << 28}}},  // 1 GiB read, 1 GiB written
    // A stage is 4096 floats; a ring has six, and wraps from its seventh chunk on.
    .check_at = {{"n", {0, 1, 3, 4, 5, 31, 4095, 4096, 4097, 40961, 1000003, 16777259}}},
    .variants = {{.id         = "vectors",
                  .launch     = on_gpu(vectors),
                  .techniques = {},
                  .idea       = "every thread copies four vectors of 16 bytes, coalesced",
                  .prediction = predict::share_at_least(0.95)},
                 {.id         = "bulk",
                  .launch     = on_gpu(bulk),
                  .techniques = {"tma"},
                  .idea = "one thread of a block sends 16 KiB at a time through a ring in shared memory",
                  .prediction = predict::share_at_least(0.92),
                  .needs      = {machine::Feature::tma}}},
    .backend  = Backend::cuda,
    .catalog  = {"memory-011"},
};
FATHOM_REGISTER(copy);

}  // namespace
}  // namespace fathom::lab::tma_copy
