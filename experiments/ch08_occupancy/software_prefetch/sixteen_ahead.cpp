// out(i) = value of key(i), 0 where the table has none                       n keys, n entries, at least 2 n
// slots
//
// bytes   32 n: key 8, slot 16 (it moves a line of 64), value 8
// flops   0
// limit   none in our list: how many misses the core and memory keep in flight at once
// idea    a prefetch 16 look-ups ahead: about a memory latency's worth of work, and as many misses as the
//         core can keep in flight
#include "probe.h"

namespace fathom::lab::software_prefetch {
namespace {

constexpr int64_t kAhead = 16;  // look-ups

}  // namespace

void sixteen_ahead(const Probe& p, Context&) {
  const int64_t n = p.key.extent(0), last_slot = p.slots - 1;
  const int64_t* key = p.key.data();
  const Slot* slot   = p.slot();
  int64_t* out       = p.out.data();
  const int shift    = p.shift();
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) __builtin_prefetch(&slot[static_cast<uint64_t>(key[i + kAhead]) >> shift]);
    auto at = static_cast<int64_t>(static_cast<uint64_t>(key[i]) >> shift);
    while (slot[at].value != 0 && slot[at].key != key[i]) at = (at + 1) & last_slot;
    out[i] = slot[at].value;
  }
}

}  // namespace fathom::lab::software_prefetch
