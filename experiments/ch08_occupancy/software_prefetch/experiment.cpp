// A look-up ends in a comparison, and the core predicts its result long before the slot arrives from memory.
// A misprediction discards the look-ups started after it, and their misses in flight. A prefetch is not
// discarded.
#include <algorithm>

#include "lab/experiment.h"
#include "probe.h"

namespace fathom::lab::software_prefetch {
namespace {

int64_t slots_for(int64_t entries) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(2, 2 * entries))));
}

}  // namespace

Probe::Probe(const Point& at, Arena& arena)
    : slots(slots_for(at["n"])),
      seed(arena.input<int64_t>({1}, generate<int64_t>([](int64_t* to, int64_t, uint64_t s) {
                                  *to = mix(static_cast<int64_t>(s));
                                }))),
      entry(arena.input<uint32_t>({at["n"]}, Uniform{0, std::max(1.0, 2.0 * static_cast<double>(at["n"]))})),
      value(arena.input<uint32_t>({at["n"]}, Uniform{1, 1 << 30})),
      key(arena.input<int64_t>(
          {at["n"]}, generate<int64_t>([seed = seed, entry = entry](int64_t* to, int64_t n, uint64_t) {
            for (int64_t i = 0; i < n; ++i) to[i] = mix(seed(0) + entry(i));
          }))),
      table(arena.input<int64_t>({slots, 2},
                                 generate<int64_t>([this_slots = slots, this_shift = shift(), seed = seed,
                                                    value = value](int64_t* to, int64_t elements, uint64_t) {
                                   std::fill_n(to, elements, 0);
                                   auto* slot = reinterpret_cast<Slot*>(to);
                                   for (int64_t e = 0; e < value.extent(0); ++e) {
                                     const int64_t k = mix(seed(0) + e);
                                     auto at = static_cast<int64_t>(static_cast<uint64_t>(k) >> this_shift);
                                     while (slot[at].value != 0) at = (at + 1) & (this_slots - 1);
                                     slot[at] = {k, value(e)};
                                   }
                                 }))),
      out(arena.output<int64_t>({at["n"]})) {}

const Experiment<Probe> probe{
    .question =
        "Can software prefetch overlap the cache misses of a batch of hash look-ups, which the core does "
        "not?",
    .limit = Limit::none,
    // A table of 64 MiB, and one of 8 MiB.
    .axes     = {{"n", {2097152, 262144}}},
    .check_at = {{"n", {0, 1, 2, 15, 16, 17, 31, 251, 10007}}},
    .variants =
        {
            {.id         = "plain",
             .launch     = plain,
             .techniques = {},
             .idea       = "one look-up after the other",
             .prediction = predict::nothing()},
            {.id         = "one_ahead",
             .launch     = one_ahead,
             .techniques = {"software_prefetch"},
             .idea       = "prefetches the next look-up's slot: too late",
             .prediction = predict::ratio(1.3)},
            {.id         = "sixteen_ahead",
             .launch     = sixteen_ahead,
             .techniques = {"software_prefetch", "latency_hiding"},
             .idea       = "prefetches the slot sixteen look-ups ahead",
             .prediction = predict::ratio_at_least(2.5)},
        },
};
FATHOM_REGISTER(probe);

}  // namespace fathom::lab::software_prefetch
