// Every step of an engine's run as JSON: what was in it, how long it took, and how evenly its tokens met the
// experts.
#pragma once

#include <functional>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "engine/step_record.h"

namespace fathom::cli {

class StepLog {
 public:
  // For EngineConfig::on_step of one engine. The log must outlive it.
  std::function<void(const engine::StepRecord&)> listener();

  // A list of the steps so far, in order. Times are seconds since the first launch; router_imbalance is null
  // where nobody counts.
  nlohmann::json to_json() const;

 private:
  mutable std::mutex mutex_;  // steps are added on the engine's thread
  std::vector<engine::StepRecord> steps_;
};

}  // namespace fathom::cli
