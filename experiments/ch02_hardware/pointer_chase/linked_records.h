// The problem: add up the payload of every record of a linked list that lives in an array, one record a cache
// line. Each record carries two links, both of which close a cycle through all records: one jumps at random,
// one goes to the record that follows in memory. Same records, same lines, same number of dependent loads;
// only the order differs.
#pragma once

#include <algorithm>

#include "core/rng.h"
#include "experiments/random_cycle.h"
#include "lab/problem.h"

namespace fathom::lab::pointer_chase {

constexpr int64_t kWords      = 8;                                     // int64 a record: one line of 64 bytes
constexpr int64_t kRandomLink = 0, kSequentialLink = 1, kPayload = 2;  // words of a record

struct LinkedRecords {
  View<const int64_t, 2> records;  // record, word
  View<int64_t, 1> out;            // sum of all payload words, the record where the walk ends

  LinkedRecords(const Point& at, Arena& arena)
      : records(arena.input<int64_t>({at["bytes"] / 64, kWords}, generate<int64_t>(fill))),
        out(arena.output<int64_t>({2})) {}

  static void fill(int64_t* records, int64_t elements, uint64_t seed) {
    const int64_t n = elements / kWords;
    fill_integers(records, elements, seed, int64_t{0}, int64_t{1} << 31);
    link_random_cycle(records, n, kWords, kRandomLink, seed + 1);
    for (int64_t i = 0; i < n; ++i) records[i * kWords + kSequentialLink] = i + 1 < n ? i + 1 : 0;
  }

  Cost cost() const { return {.read = records.bytes(), .written = out.bytes(), .loads = records.extent(0)}; }
  int64_t expected(int64_t what) const {
    if (what == 1) return 0;  // both cycles start there and close
    int64_t sum = 0;
    for (int64_t i = 0; i < records.extent(0); ++i)
      for (int64_t w = kPayload; w < kWords; ++w) sum += records(i, w);
    return sum;
  }
};

void random_order(const LinkedRecords& p, Context& context);
void sequential_order(const LinkedRecords& p, Context& context);

}  // namespace fathom::lab::pointer_chase
