// The KV cache of all layers in fp32 pages (kernels/attention/attention.h). The caller assigns pages to
// sequences. A page that was never written takes no memory.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "kernels/attention/attention.h"
#include "model/config.h"

namespace fathom::model {

class KvCache {
 public:
  // Full-attention and sliding-window layers have separate numbers of pages.
  KvCache(const Config& config, int64_t full_pages, int64_t window_pages, int64_t page_size);

  const kernels::KvPages& layer(int64_t l) const { return layers_[static_cast<size_t>(l)]; }

 private:
  std::vector<Buffer<float>> memory_;
  std::vector<kernels::KvPages> layers_;
};

}  // namespace fathom::model
