#include "cuda/nvtx_range.h"

#include <nvtx3/nvToolsExt.h>

#include "cuda/range_log.h"

namespace fathom {
namespace {

// Null where no tool is attached; ranges then do nothing.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA("fathom");
  return handle;
}

}  // namespace

NvtxRange::NvtxRange(const char* name) : logged_(begin_range(name)) {
  if (!domain()) return;
  nvtxEventAttributes_t attributes{};
  attributes.version       = NVTX_VERSION;
  attributes.size          = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType   = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  (void)nvtxDomainRangePushEx(domain(), &attributes);
}

NvtxRange::~NvtxRange() {
  if (logged_) end_range();
  if (domain()) (void)nvtxDomainRangePop(domain());
}

}  // namespace fathom
