#include "cli/step_log.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace fathom::cli {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

TEST(StepLog, ListsStepsFromTheFirstLaunchOn) {
  StepLog log;
  EXPECT_EQ(log.to_json(), json::array());
  const std::chrono::steady_clock::time_point start(milliseconds(5000));
  const auto step = log.listener();
  step({.launched         = start,
        .done             = start + milliseconds(500),
        .prompt_rows      = 40,
        .tokens           = 2,
        .router_imbalance = 1.5});
  // Launched while the first was in flight.
  step({.launched = start + milliseconds(250), .done = start + milliseconds(750), .decodes = 3, .tokens = 3});
  const json steps = log.to_json();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0], (json{{"launched_s", 0.0},
                            {"done_s", 0.5},
                            {"prompt_rows", 40},
                            {"decodes", 0},
                            {"tokens", 2},
                            {"router_imbalance", 1.5}}));
  EXPECT_EQ(steps[1], (json{{"launched_s", 0.25},
                            {"done_s", 0.75},
                            {"prompt_rows", 0},
                            {"decodes", 3},
                            {"tokens", 3},
                            {"router_imbalance", nullptr}}));
}

}  // namespace
}  // namespace fathom::cli
