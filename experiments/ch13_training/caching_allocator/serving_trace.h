// The allocations of an eager MoE engine's steps, in order: what a framework asks its allocator for.
#pragma once

#include <cstdint>
#include <vector>

namespace fathom::lab::caching_allocator {

struct Trace {
  struct Event {
    int32_t allocation;
    bool frees;
  };
  std::vector<int64_t> bytes;  // of each allocation, in the order in which they are made; multiples of 4
  std::vector<Event> events;   // each allocation is made once and freed once, later
  int64_t peak_bytes = 0;      // the most that is in use at once
};

// Steps of gpt-oss-20b: 24 layers, each with the tensors of attention, router and experts, which are freed
// when the next operation has used them. A step has between 1 and 2048 tokens, decode or a piece of prefill,
// the same in every run. The KV cache of a step's tokens lives for two steps more.
Trace moe_serving_trace(int64_t steps);

}  // namespace fathom::lab::caching_allocator
