// Stands in for what needs CUDA in a build without it.
#include "core/expect.h"
#include "cuda/device.h"

namespace fathom {

int device_count() { return 0; }
Device* find_device(DeviceId) { return nullptr; }
std::string why_no_device(DeviceId) { return "this fathom was built without CUDA (preset cuda has it)"; }
Device& device(DeviceId id) { throw SystemError(why_no_device(id)); }

}  // namespace fathom
