// out(0) = sum of the payload of n records, visited along their links            n records of 64 bytes
//
// bytes   64 n read, every line once
// flops   0; n dependent loads, 6 n additions in their shadow
// limit   bandwidth, for lines fetched early; this order pays the full latency of every load
// idea    baseline: links in random order, so the next address is known only when this line has arrived
#include "linked_records.h"

namespace fathom::lab::pointer_chase {

void random_order(const LinkedRecords& p, Context&) {
  const int64_t n        = p.records.extent(0);
  const int64_t* records = p.records.data();
  int64_t sum = 0, at = 0;
  for (int64_t step = 0; step < n; ++step) {
    const int64_t* record = records + at * kWords;
    for (int64_t w = kPayload; w < kWords; ++w) sum += record[w];
    at = record[kRandomLink];
  }
  p.out(0) = sum;
  p.out(1) = at;
}

}  // namespace fathom::lab::pointer_chase
