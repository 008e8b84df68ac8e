// What a build without CUDA says of GPUs.
#include "core/device.h"

namespace fathom {

Device* cuda_device() { return nullptr; }
std::string why_no_cuda_device() { return "this fathom was built without CUDA (preset cuda has it)"; }

}  // namespace fathom
