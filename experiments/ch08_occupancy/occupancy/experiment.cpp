// A block's shared memory is not available to other blocks: the number of tables that fit, not threads or
// registers, limits this kernel's resident warps.
#include "lab/experiment.h"
#include "lookup.h"

namespace fathom::lab::occupancy {

Lookup::Lookup(const Point& at, Arena& arena)
    : code(arena.input<int32_t>({at["n"]}, Uniform{0, kEntries})),
      table(arena.input<float>({kEntries}, Uniform{-1, 1})),
      out(arena.output<float>({at["n"]})) {}

Cost Lookup::cost() const {
  return {.read = code.bytes() + (out.size() > 0 ? table.bytes() : 0), .written = out.bytes()};
}

double Lookup::expected(int64_t i) const { return table(code(i)); }

const Experiment<Lookup> lookup{
    .question =
        "When shared memory limits the resident warps, what does that cost a memory-bound kernel, and how "
        "can it be recovered?",
    .limit    = Limit::memory,
    .axes     = {{"n", {67108864}}},
    .check_at = {{"n", {0, 1, 3, 4, 5, 31, 127, 255, 257, 1021, 1023, 1025, 2047, 2049, 10007, 1000003}}},
    .variants =
        {
            {.id         = "block_256",
             .launch     = on_gpu(block_256),
             .techniques = {"shared_memory"},
             .idea       = "a table of 64 KiB for every 256 threads: 24 of 64 warps are resident",
             .prediction = predict::share(0.27)},
            {.id         = "block_512",
             .launch     = on_gpu(block_512),
             .techniques = {"shared_memory", "occupancy_tuning"},
             .idea       = "512 threads share a table: 48 warps",
             .prediction = predict::ratio(1.9)},
            {.id         = "block_1024",
             .launch     = on_gpu(block_1024),
             .techniques = {"shared_memory", "occupancy_tuning"},
             .idea       = "1024 threads share a table: all 64 warps",
             .prediction = predict::ratio(2.4)},
            {.id         = "vectorized",
             .launch     = on_gpu(vectorized),
             .techniques = {"shared_memory", "vectorization", "instruction_level_parallelism"},
             .idea       = "24 warps again, two 16-byte loads in flight in each thread",
             .prediction = predict::share_at_least(0.85)},
        },
    .backend = Backend::cuda,
    .catalog = {"tiling-004"},
};
FATHOM_REGISTER(lookup);

}  // namespace fathom::lab::occupancy
