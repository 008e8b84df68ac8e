// The problem: follow 2^17 links of a random cycle through an array of one-line records, and add up what is
// passed. The array exists twice with the same values, on 4 KiB pages and on 2 MiB pages; a variant reads one
// of them.
#pragma once

#include <cstring>

#include "core/rng.h"
#include "experiments/random_cycle.h"
#include "lab/problem.h"

namespace fathom::lab::huge_pages {

// int32 a record: one line of 64 bytes. Word 0 is the link, word 1 the payload.
constexpr int64_t kWords = 16;

struct LongWalk {
  int64_t steps;
  View<const int32_t, 2> small;  // record, word
  View<const int32_t, 2> huge;   // the same values
  View<int64_t, 1> out;          // sum of the payload passed, the record where the walk ends

  LongWalk(const Point& at, Arena& arena)
      : steps(at["bytes"] == 0 ? 0 : at["steps"]),
        small(arena.input<int32_t>({at["bytes"] / 64, kWords}, generate<int32_t>(fill), Pages::small)),
        huge(arena.input<int32_t>({at["bytes"] / 64, kWords},
                                  generate<int32_t>([from = small](int32_t* to, int64_t, uint64_t) {
                                    if (from.bytes() > 0)
                                      std::memcpy(to, from.data(), static_cast<size_t>(from.bytes()));
                                  }),
                                  Pages::huge)),
        out(arena.output<int64_t>({2})) {}

  static void fill(int32_t* records, int64_t elements, uint64_t seed) {
    fill_integers(records, elements, seed, int64_t{0}, int64_t{1} << 30);
    link_random_cycle(records, elements / kWords, kWords, 0, seed + 1);
  }

  Cost cost() const {
    return {.read = 8 * steps, .written = out.bytes(), .loads = steps, .working_set = huge.bytes()};
  }
  int64_t expected(int64_t what) const {
    int64_t sum = 0, at = 0;
    for (int64_t step = 0; step < steps; ++step) {
      sum += huge(at, 1);
      at = huge(at, 0);
    }
    return what == 0 ? sum : at;
  }
};

// out from the records of one of the arrays.
inline void walk(const LongWalk& p, View<const int32_t, 2> array) {
  const int32_t* records = array.data();
  int64_t sum = 0, at = 0;
  for (int64_t step = 0; step < p.steps; ++step) {
    const int32_t* record = records + at * kWords;
    sum += record[1];
    at = record[0];
  }
  p.out(0) = sum;
  p.out(1) = at;
}

void small_pages(const LongWalk& p, Context& context);
void huge_pages(const LongWalk& p, Context& context);

}  // namespace fathom::lab::huge_pages
