// What kv_allocator.js calls: requests are put, a run is started and stepped.
#include "book/kv_model.h"

#define WASM_EXPORT(name) extern "C" __attribute__((export_name(#name)))

using namespace fathom::book;

namespace {

KvRequest requests[kMostRequests];
KvAllocator allocator;
KvCounts counts;

}  // namespace

WASM_EXPORT(put) void put(int32_t i, int32_t prompt, int32_t output, int32_t arrival) {
  if (i >= 0 && i < kMostRequests) requests[i] = {prompt, output, arrival};
}

WASM_EXPORT(start)
void start(int32_t count, int32_t placement, int32_t sharing, int32_t blocks, int32_t block_size,
           int32_t shared, int32_t reserve) {
  allocator.reset({.placement  = static_cast<Placement>(placement),
                   .sharing    = static_cast<Sharing>(sharing),
                   .blocks     = blocks < kMostBlocks ? blocks : kMostBlocks,
                   .block_size = block_size,
                   .shared     = shared,
                   .reserve    = reserve},
                  requests, count < kMostRequests ? count : kMostRequests);
}

// One step; 0 when nothing is left to do. The getters below tell of the state after it.
WASM_EXPORT(step) int32_t step() {
  const bool more = allocator.step();
  counts          = allocator.counts();
  return more;
}

WASM_EXPORT(in_use) int32_t in_use() { return counts.in_use; }
WASM_EXPORT(cached) int32_t cached() { return counts.cached; }
WASM_EXPORT(unshared) int32_t unshared() { return counts.unshared; }
WASM_EXPORT(filled) int32_t filled() { return counts.filled; }
WASM_EXPORT(longest_gap) int32_t longest_gap() { return counts.longest_gap; }
WASM_EXPORT(found) int32_t found() { return counts.found; }
WASM_EXPORT(evicted) int32_t evicted() { return counts.evicted; }
WASM_EXPORT(preempted) int32_t preempted() { return counts.preempted; }
WASM_EXPORT(state_of) int32_t state_of(int32_t r) { return static_cast<int32_t>(allocator.state(r)); }
WASM_EXPORT(tokens_of) int32_t tokens_of(int32_t r) { return allocator.tokens(r); }
WASM_EXPORT(table_size) int32_t table_size(int32_t r) { return allocator.table_size(r); }
WASM_EXPORT(table_entry) int32_t table_entry(int32_t r, int32_t i) { return allocator.block(r, i); }
WASM_EXPORT(filled_of) int32_t filled_of(int32_t block) { return allocator.filled(block); }
WASM_EXPORT(is_cached) int32_t is_cached(int32_t block) { return allocator.cached(block); }
