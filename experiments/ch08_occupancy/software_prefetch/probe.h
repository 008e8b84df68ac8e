// The problem: look up n keys, all known beforehand, in a hash table of n entries: open addressing, linear
// probing, at most half full. Half of the keys are in the table. out(i) = the value of key i, 0 where there
// is none.
#pragma once

#include <bit>

#include "lab/problem.h"

namespace fathom::lab::software_prefetch {

struct Slot {
  int64_t key;
  int64_t value;  // 0: the slot is empty
};

// A bijection on 64 bits that leaves no pattern (the finalizer of splitmix64; Steele, Lea, Flood 2014).
inline int64_t mix(int64_t number) {
  auto z = static_cast<uint64_t>(number);
  z      = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z      = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return static_cast<int64_t>(z ^ (z >> 31));
}

struct Probe {
  int64_t slots;  // a power of two
  // Entry e is {key mix(seed + e), value(e)}; keys of entries n .. 2 n - 1 are not in the table.
  View<const int64_t, 1> seed;    // one element
  View<const uint32_t, 1> entry;  // which entry each look-up asks for, below 2 n
  View<const uint32_t, 1> value;  // of each entry, above 0
  View<const int64_t, 1> key;     // mix(seed + entry(i))
  View<const int64_t, 2> table;   // slots x 2: Slots
  View<int64_t, 1> out;

  Probe(const Point& at, Arena& arena);

  const Slot* slot() const { return reinterpret_cast<const Slot*>(table.data()); }
  // Keys are random already: their high bits are the place where the search begins.
  int shift() const { return 64 - std::countr_zero(static_cast<uint64_t>(slots)); }

  Cost cost() const {
    return {.read = key.bytes() + key.extent(0) * int64_t{sizeof(Slot)}, .written = out.bytes()};
  }
  int64_t expected(int64_t i) const { return entry(i) < value.extent(0) ? value(entry(i)) : 0; }
};

void plain(const Probe& p, Context& context);
void one_ahead(const Probe& p, Context& context);
void sixteen_ahead(const Probe& p, Context& context);

}  // namespace fathom::lab::software_prefetch
