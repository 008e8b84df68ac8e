// The keys and values of every layer, in fp32 pages. Which page is whose is the caller's affair
// (kernels/attention.h); a page that was never written costs no memory.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "kernels/attention.h"
#include "model/config.h"

namespace fathom::model {

class KvCache {
 public:
  // Layers that see all and layers that see a window back have numbers of pages of their own.
  KvCache(const Config& config, int64_t full_pages, int64_t window_pages, int64_t page_size);

  const kernels::KvPages& layer(int64_t l) const { return layers_[static_cast<size_t>(l)]; }

 private:
  std::vector<Buffer<float>> memory_;
  std::vector<kernels::KvPages> layers_;
};

}  // namespace fathom::model
