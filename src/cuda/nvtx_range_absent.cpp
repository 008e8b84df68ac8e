#include "cuda/nvtx_range.h"
#include "cuda/range_log.h"

namespace fathom {

NvtxRange::NvtxRange(const char* name) : logged_(begin_range(name)) {}
NvtxRange::~NvtxRange() {
  if (logged_) end_range();
}

}  // namespace fathom
