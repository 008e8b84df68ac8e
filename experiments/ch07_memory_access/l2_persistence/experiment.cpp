// A table that would fit L2 shares it with streams that are used once, and between two uses of a row more
// stream data passes than L2 holds. Either the table is marked as persisting, or the streams are marked
// evict-first.
#include "lab/experiment.h"

#include <cmath>

#include "lookup.h"

namespace fathom::lab::l2_persistence {
namespace {

int64_t table_rows(const Point& at) { return at["table_mib"] * (1 << 20) / (kWidth * 4); }

}  // namespace

Lookup::Lookup(const Point& at, Arena& arena)
    : x(arena.input<float>({at["n"], kWidth}, Uniform{-1, 1})),
      id(arena.input<int32_t>({at["n"]}, Uniform{0, static_cast<double>(table_rows(at))})),
      table(arena.input<float>({table_rows(at), kWidth}, Uniform{-1, 1})),
      out(arena.output<float>({at["n"], kWidth})) {
  FATHOM_EXPECT(table_rows(at) > 0, "a table needs a row");
  FATHOM_EXPECT(x.size() < int64_t{1} << 31, "elements are counted in 32 bits");
}

// Counts the table once: a variant that reads more of it from DRAM has lost it from L2.
Cost Lookup::cost() const { return {.read = x.bytes() + id.bytes() + table.bytes(), .written = out.bytes()}; }

Sum Lookup::expected(int64_t i, int64_t d) const {
  const double a = x(i, d), b = table(id(i), d);
  return {.value = a + b, .magnitude = std::abs(a) + std::abs(b)};
}

namespace {

const Experiment<Lookup> lookup{
    .question = "What keeps a table in L2 beside streams: a persisting window, or evict-first streams?",
    .limit    = Limit::memory,
    // 512 MiB in, 512 MiB out, 512 MiB of look-ups. Between two uses of a row passes three times the table.
    .axes     = {{"n", {1 << 21}}, {"table_mib", {16, 32}}},
    .check_at = {{"n", {0, 1, 15, 16, 17, 63, 64, 65, 1009}}, {"table_mib", {1}}},
    .variants =
        {
            {.id         = "unmanaged",
             .launch     = on_gpu(unmanaged),
             .techniques = {},
             .idea       = "no hints: L2 keeps recent lines",
             .prediction = predict::share(0.8)},
            {.id         = "window",
             .launch     = on_gpu(window),
             .techniques = {"l2_persistence"},
             .idea       = "an access-policy window makes the table persist, and a second kernel ends that",
             .prediction = predict::ratio(1.15),
             .persisting_l2 = 32 << 20},
            {.id         = "evict_first",
             .launch     = on_gpu(evict_first),
             .techniques = {"cache_hints"},
             .idea       = "no state: the streams are loaded and stored evict-first",
             .prediction = predict::ratio(1.15)},
        },
    .backend = Backend::cuda,
    .catalog = {"memory-014"},
};
FATHOM_REGISTER(lookup);

}  // namespace
}  // namespace fathom::lab::l2_persistence
