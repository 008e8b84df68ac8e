#include "cli/step_log.h"

#include <chrono>
#include <nlohmann/json.hpp>

namespace fathom::cli {

using engine::StepRecord;

std::function<void(const StepRecord&)> StepLog::listener() {
  return [this](const StepRecord& step) {
    const std::lock_guard lock(mutex_);
    steps_.push_back(step);
  };
}

nlohmann::json StepLog::to_json() const {
  const std::lock_guard lock(mutex_);
  const auto since_first = [&](std::chrono::steady_clock::time_point time) {
    return std::chrono::duration<double>(time - steps_.front().launched).count();
  };
  auto out = nlohmann::json::array();
  for (const StepRecord& step : steps_) {
    auto& row = out.emplace_back(nlohmann::json{{"launched_s", since_first(step.launched)},
                                                {"done_s", since_first(step.done)},
                                                {"prompt_rows", step.prompt_rows},
                                                {"decodes", step.decodes},
                                                {"tokens", step.tokens},
                                                {"router_imbalance", nullptr}});
    if (step.router_imbalance) row["router_imbalance"] = *step.router_imbalance;
  }
  return out;
}

}  // namespace fathom::cli
