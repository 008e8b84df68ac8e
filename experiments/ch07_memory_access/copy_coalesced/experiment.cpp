// A warp's 32 addresses are one request. If they are consecutive, the request takes four 32-byte sectors; if
// each is in its own sector it takes 32, and 28 of every 32 transferred bytes are not used by this request.
#include "lab/experiment.h"

#include "copy.h"

namespace fathom::lab::copy_coalesced {

Copy::Copy(const Point& at, Arena& arena)
    : stride(at["stride"]),
      in(arena.input<float>({at["n"]}, Uniform{-1, 1})),
      out(arena.output<float>({at["n"]})) {}

Cost Copy::cost() const { return {.read = in.bytes(), .written = out.bytes()}; }

double Copy::expected(int64_t i) const { return in(i); }

namespace {

const Experiment<Copy> copy{
    .question = "What does a copy pay when neighbouring threads access addresses a stride apart?",
    .limit    = Limit::memory,
    // 1 GiB to 1 GiB. A stride of 32 floats: a line for each lane; of 8: a sector for each; of 4: two share
    // one.
    .axes     = {{"n", {1 << 28}}, {"stride", {32, 8, 4}}},
    .check_at = {{"n", {0, 1, 31, 33, 255, 256, 257, 8191, 8192, 8193, 100003}}, {"stride", {1, 3, 32}}},
    .variants =
        {
            {.id         = "strided",
             .launch     = on_gpu(strided),
             .techniques = {},
             .idea       = "each thread copies a run of its own, as a thread of a CPU would",
             .prediction = predict::share(0.25)},
            {.id         = "coalesced",
             .launch     = on_gpu(coalesced),
             .techniques = {"coalescing"},
             .idea       = "each warp copies runs of 128 bytes, a float for each lane",
             .prediction = predict::share_at_least(0.95)},
        },
    .backend = Backend::cuda,
    .catalog = {"memory-007"},
};
FATHOM_REGISTER(copy);

}  // namespace
}  // namespace fathom::lab::copy_coalesced
