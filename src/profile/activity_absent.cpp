#include "profile/activity.h"

namespace fathom::profile {

Result<std::unique_ptr<ActivityWatch>> ActivityWatch::open() {
  return Error{"this fathom was built without CUDA (preset cuda has it), so it sees no kernels"};
}

Result<Activity> watch_activity(const std::function<void()>&) { return ActivityWatch::open().error(); }

}  // namespace fathom::profile
