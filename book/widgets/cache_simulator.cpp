// What cache_simulator.js calls: one cache, one trace and its reuse distances in static memory.
#include "book/cache_model.h"

#define WASM_EXPORT(name) extern "C" __attribute__((export_name(#name)))

namespace {

using namespace fathom::book;

constexpr int32_t kAccesses = 1 << 17;

Cache cache;
ReuseStack stack;
CacheShape shape;
CacheAccess last;
uint32_t addresses[kAccesses];
int32_t distances[kAccesses];
bool hits[kAccesses];
int32_t count = 0;

}  // namespace

// Runs the nest through the cache; the number of accesses, or -1 for what is impossible or too long.
WASM_EXPORT(simulate)
int32_t simulate(int32_t sets, int32_t ways, int32_t line_bytes, int32_t policy, int32_t pattern, int32_t n,
                 int32_t stride, int32_t tile, int32_t passes) {
  count = 0;
  shape = {sets, ways, line_bytes, static_cast<Policy>(policy)};
  if (!Cache::possible(shape)) return -1;
  const int32_t made =
      make_trace({static_cast<Pattern>(pattern), n, stride, tile, passes}, addresses, kAccesses);
  if (made < 0) return -1;
  count = made;
  cache.reset(shape);
  stack.reset();
  for (int32_t i = 0; i < count; ++i) {
    last         = cache.access(addresses[i]);
    hits[i]      = last.hit;
    distances[i] = stack.access(last.line);
  }
  return count;
}

WASM_EXPORT(hits_between)
int32_t hits_between(int32_t begin, int32_t end) {
  int32_t sum = 0;
  for (int32_t i = begin; i < end && i < count; ++i) sum += hits[i];
  return sum;
}

// Accesses whose reuse distance lies in [low, high); the first accesses to a line have distance -1.
WASM_EXPORT(distances_between)
int32_t distances_between(int32_t low, int32_t high) {
  int32_t sum = 0;
  for (int32_t i = 0; i < count; ++i) sum += distances[i] >= low && distances[i] < high;
  return sum;
}

// Brings the cache to its state after the first `accesses`; the getters below tell of the last of them.
WASM_EXPORT(rewind)
void rewind(int32_t accesses) {
  cache.reset(shape);
  for (int32_t i = 0; i < accesses && i < count; ++i) last = cache.access(addresses[i]);
}

WASM_EXPORT(address_of) uint32_t address_of(int32_t access) { return addresses[access]; }
WASM_EXPORT(line_at) int32_t line_at(int32_t set, int32_t way) { return cache.line_at(set, way); }
WASM_EXPORT(last_hit) int32_t last_hit() { return last.hit; }
WASM_EXPORT(last_line) int32_t last_line() { return last.line; }
WASM_EXPORT(last_set) int32_t last_set() { return last.set; }
WASM_EXPORT(last_way) int32_t last_way() { return last.way; }
WASM_EXPORT(last_evicted) int32_t last_evicted() { return last.evicted; }
