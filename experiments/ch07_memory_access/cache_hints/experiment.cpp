// A kernel's stores go through L2 and evict other lines. For a result that is not read soon this is a loss; a
// hint on the store avoids it.
#include "lab/experiment.h"

#include "expand.h"

namespace fathom::lab::cache_hints {
namespace {

int64_t table_rows(const Point& at) { return at["table_mib"] * (1 << 20) / (kWidth * 4); }

}  // namespace

Expand::Expand(const Point& at, Arena& arena)
    : id(arena.input<int32_t>({at["n"]}, Uniform{0, static_cast<double>(table_rows(at))})),
      table(arena.input<float>({table_rows(at), kWidth}, Uniform{-1, 1})),
      out(arena.output<float>({at["n"], kWidth})) {
  FATHOM_EXPECT(table_rows(at) > 0, "a table needs a row");
  FATHOM_EXPECT(out.size() < int64_t{1} << 31, "elements are counted in 32 bits");
}

// Counts the table once: a variant that reads more of it from DRAM has lost it from L2.
Cost Expand::cost() const { return {.read = id.bytes() + table.bytes(), .written = out.bytes()}; }

double Expand::expected(int64_t i, int64_t d) const { return table(id(i), d); }

namespace {

const Experiment<Expand> expand{
    .question =
        "What do cache hints on loads and stores save when a write-once stream competes with a table for L2?",
    .limit = Limit::memory,
    // 1 GiB written. Between two uses of a row of the table, as many bytes as it has are written.
    .axes     = {{"n", {1 << 22}}, {"table_mib", {32, 16}}},
    .check_at = {{"n", {0, 1, 15, 16, 17, 63, 64, 65, 1009}}, {"table_mib", {1}}},
    .variants =
        {
            {.id         = "plain",
             .launch     = on_gpu(plain),
             .techniques = {},
             .idea       = "plain loads and stores",
             .prediction = predict::share(0.72)},
            {.id         = "no_allocate",
             .launch     = on_gpu(no_allocate),
             .techniques = {"cache_hints"},
             .idea       = "loads that do not allocate in L1 and fetch 256 bytes into L2",
             .prediction = predict::ratio(1.0)},
            {.id         = "streaming",
             .launch     = on_gpu(streaming),
             .techniques = {"cache_hints"},
             .idea       = "st.global.cs: the result's lines are the first to leave L2",
             .prediction = predict::ratio(1.25)},
            {.id         = "evict_first",
             .launch     = on_gpu(evict_first),
             .techniques = {"cache_hints"},
             .idea       = "the same hint as an L2 policy operand of the store",
             .prediction = predict::ratio(1.25)},
            {.id         = "both",
             .launch     = on_gpu(both),
             .techniques = {"cache_hints"},
             .idea       = "no_allocate loads and streaming stores",
             .prediction = predict::ratio(1.25)},
        },
    .backend = Backend::cuda,
    .catalog = {"memory-013", "memory-020"},
};
FATHOM_REGISTER(expand);

}  // namespace
}  // namespace fathom::lab::cache_hints
