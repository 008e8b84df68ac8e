#include "serve/role_planner.h"

#include <algorithm>

namespace fathom::serve {

// A latency at its target counts as a utilisation at which the pool needs a worker.
double RolePlanner::pressure(const Pool& pool) const {
  return std::max(pool.utilization, pool.latency * options_.scale_up);
}

// Without one of its n workers, the donor's others have n / (n - 1) times the load. That this is foreseen,
// and held against a lower threshold, is what keeps the worker from being asked back.
bool RolePlanner::wants(const Pool& needy, const Pool& donor) const {
  if (donor.workers < 2) return false;
  const auto n = static_cast<double>(donor.workers);
  return pressure(needy) > options_.scale_up && pressure(donor) * n / (n - 1) < options_.spare;
}

std::optional<WorkerRole> RolePlanner::plan(const Pool& prefill, const Pool& decode) {
  std::optional<WorkerRole> wants_now;
  if (wants(prefill, decode)) wants_now = WorkerRole::prefill;
  if (wants(decode, prefill)) wants_now = WorkerRole::decode;
  if (resting_ > 0) {
    --resting_;
    wants_now.reset();
  }
  in_a_row_ = wants_now && wants_now == wanted_ ? in_a_row_ + 1 : wants_now.has_value();
  wanted_   = wants_now;
  if (in_a_row_ < options_.confirmations) return {};
  resting_  = options_.cooldown;
  in_a_row_ = 0;
  return wants_now;
}

}  // namespace fathom::serve
