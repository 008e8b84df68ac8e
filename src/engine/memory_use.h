// Bytes that an engine allocates at its start and keeps: of the host where it runs on CPUs, of the GPU where
// it runs on one.
#pragma once

#include <cstdint>

namespace fathom::engine {

struct MemoryUse {
  int64_t weights   = 0;  // on CPUs mapped from the checkpoint's files, which engines of one machine share
  int64_t kv_cache  = 0;
  int64_t workspace = 0;  // activations, scratch, logits

  int64_t total() const { return weights + kv_cache + workspace; }
};

}  // namespace fathom::engine
