#include "experiments/ch13_training/caching_allocator/serving_trace.h"

#include <algorithm>
#include <deque>

#include "core/splitmix64.h"

namespace fathom::lab::caching_allocator {
namespace {

constexpr int64_t kLayers = 24, kWidth = 2880, kQkv = 5120, kHeads = 4096, kKv = 2 * 512, kExperts = 32,
                  kTopK = 4, kVocabulary = 201088, kBf16 = 2, kFp32 = 4;
constexpr int kStepsOfKv = 2;  // beyond its own

class Recorder {
 public:
  int32_t allocate(int64_t bytes) {
    const auto allocation = static_cast<int32_t>(trace_.bytes.size());
    trace_.bytes.push_back(bytes);
    trace_.events.push_back({allocation, false});
    in_use_ += bytes;
    trace_.peak_bytes = std::max(trace_.peak_bytes, in_use_);
    return allocation;
  }
  void free(int32_t allocation) {
    trace_.events.push_back({allocation, true});
    in_use_ -= trace_.bytes[static_cast<size_t>(allocation)];
  }
  // The result of an operation, whose argument is then not needed any more.
  int32_t replace(int32_t argument, int64_t bytes) {
    const int32_t result = allocate(bytes);
    free(argument);
    return result;
  }
  Trace take() { return std::move(trace_); }

 private:
  Trace trace_;
  int64_t in_use_ = 0;
};

// A third of the steps have a piece of prefill.
int64_t tokens_of(int64_t step) {
  const uint64_t random = splitmix64(static_cast<uint64_t>(step + 1) * kSplitmix64Increment);
  const auto decode     = static_cast<int64_t>(1 + random % 64);
  return random % 3 == 0 ? std::min<int64_t>(2048, decode + static_cast<int64_t>(random >> 32) % 2048)
                         : decode;
}

// Attention and experts; `residual` stays.
void layer(Recorder& record, int64_t tokens) {
  int32_t x = record.allocate(tokens * kWidth * kBf16);  // normalised
  x         = record.replace(x, tokens * kQkv * kBf16);
  x         = record.replace(x, tokens * kHeads * kBf16);  // attention
  x         = record.replace(x, tokens * kWidth * kBf16);  // its projection, added to the residual
  x         = record.replace(x, tokens * kWidth * kBf16);  // normalised

  const int32_t logits = record.allocate(tokens * kExperts * kFp32);
  const int32_t routes = record.replace(logits, tokens * kTopK * 2 * kFp32);  // ids and weights
  x                    = record.replace(x, tokens * kTopK * kWidth * kBf16);  // sorted by expert
  x                    = record.replace(x, tokens * kTopK * 2 * kWidth * kBf16);
  x                    = record.replace(x, tokens * kTopK * kWidth * kBf16);  // activated
  x                    = record.replace(x, tokens * kTopK * kWidth * kBf16);
  x                    = record.replace(x, tokens * kWidth * kBf16);  // combined
  record.free(routes);
  record.free(x);
}

}  // namespace

Trace moe_serving_trace(int64_t steps) {
  Recorder record;
  std::deque<int32_t> kv;
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t tokens   = tokens_of(step);
    const int32_t residual = record.allocate(tokens * kWidth * kBf16);
    kv.push_back(record.allocate(tokens * kLayers * kKv * kBf16));
    for (int64_t l = 0; l < kLayers; ++l) layer(record, tokens);
    const int64_t sampled = std::min<int64_t>(tokens, 64);
    record.free(record.replace(residual, sampled * kVocabulary * kFp32));
    if (kv.size() > kStepsOfKv) {
      record.free(kv.front());
      kv.pop_front();
    }
  }
  for (const int32_t left : kv) record.free(left);
  return record.take();
}

}  // namespace fathom::lab::caching_allocator
