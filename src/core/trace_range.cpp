#include "core/trace_range.h"

#include <nvtx3/nvToolsExt.h>

namespace fathom {
namespace {

// Null where no tool is attached: then nothing is said at all.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA("fathom");
  return handle;
}

}  // namespace

TraceRange::TraceRange(const char* name) {
  if (!domain()) return;
  nvtxEventAttributes_t attributes{};
  attributes.version       = NVTX_VERSION;
  attributes.size          = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType   = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  (void)nvtxDomainRangePushEx(domain(), &attributes);
}

TraceRange::~TraceRange() {
  if (domain()) (void)nvtxDomainRangePop(domain());
}

}  // namespace fathom
