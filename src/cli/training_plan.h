// fathom launch --plan: which GPU does what in a training run, before one is started.
#pragma once

#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace fathom::cli {

struct TrainingPlanFlags {
  std::string mesh, shape = "llama-3-8b";
  int domain       = 8;
  int64_t sequence = 4096, micro_batch = 1, global_batch = 64;
  double gpu_gb = 80;
};
std::shared_ptr<TrainingPlanFlags> add_training_plan_flags(CLI::App& verb);

// The plan, and NCCL's settings of the profile, where its name is not empty. Throws UsageError where the run
// cannot be.
std::string training_plan_text(const TrainingPlanFlags& flags, const std::string& nccl_profile);

}  // namespace fathom::cli
