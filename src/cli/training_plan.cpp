#include "cli/training_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <vector>

#include "cli/number_check.h"
#include "cli/table.h"
#include "cli/usage_error.h"
#include "launch/nccl_profile.h"
#include "launch/training_plan.h"

namespace fathom::cli {
namespace {

std::string gigabytes(double bytes) { return fmt::format("{:.2f} GB", bytes * 1e-9); }

Table axes_table(const launch::TrainingPlan& plan) {
  Table table{.columns = {{"axis"}, {"rank 0 with"}, {"link"}, {"a rank sends", true}, {"of"}}, .rows = {}};
  for (const launch::AxisPlan& axis : plan.axes) {
    std::vector<int> group;
    for (int i = 0; i < axis.size; ++i) group.push_back(i * axis.stride);
    table.rows.push_back({fmt::format("{}{}", axis.name, axis.size), fmt::format("{}", fmt::join(group, " ")),
                          axis.size == 1 ? "none"
                          : axis.nvlink  ? "NVLink"
                                         : "network",
                          gigabytes(axis.sent_bytes), axis.carries});
  }
  return table;
}

Table ranks_table(const launch::TrainingPlan& plan, int domain) {
  Table table{.columns = {{"rank", true}, {"domain", true}, {"GPU", true}}, .rows = {}};
  for (const launch::AxisPlan& axis : plan.axes) table.columns.push_back({axis.name, true});
  for (int rank = 0; rank < plan.ranks; ++rank) {
    table.rows.push_back(
        {fmt::format("{}", rank), fmt::format("{}", rank / domain), fmt::format("{}", rank % domain)});
    for (size_t axis = 0; axis < plan.axes.size(); ++axis)
      table.rows.back().push_back(fmt::format("{}", plan.coordinate(rank, axis)));
  }
  return table;
}

Table memory_table(const launch::TrainingPlan& plan, double gpu_bytes) {
  Table table{.columns = {{"stage", true},
                          {"weights", true},
                          {"gradients", true},
                          {"optimizer", true},
                          {"activations", true},
                          {"sum", true},
                          {"of a GPU", true}},
              .rows    = {}};
  for (const launch::StageMemory& stage : plan.stages)
    table.rows.push_back({fmt::format("{}", stage.stage), gigabytes(stage.weights),
                          gigabytes(stage.gradients), gigabytes(stage.optimizer),
                          gigabytes(stage.activations), gigabytes(stage.total()),
                          fmt::format("{:.0f} %", 100 * stage.total() / gpu_bytes)});
  return table;
}

}  // namespace

std::shared_ptr<TrainingPlanFlags> add_training_plan_flags(CLI::App& verb) {
  auto flags = std::make_shared<TrainingPlanFlags>();
  verb.add_option("--plan", flags->mesh,
                  "Print how a training run would lie on a mesh such as pp2_dp1_tp4, and start nothing");
  verb.add_option("--shape", flags->shape, "Of --plan: llama-3-8b, llama-3-70b or llama-3-405b")
      ->capture_default_str();
  verb.add_option("--domain", flags->domain, "Of --plan: GPUs that share NVLink")
      ->check(whole_between(1, 4096))
      ->capture_default_str();
  verb.add_option("--sequence", flags->sequence, "Of --plan: tokens of a sequence")
      ->check(whole_between(1, 1 << 24))
      ->capture_default_str();
  verb.add_option("--micro-batch", flags->micro_batch, "Of --plan: sequences of a pass")
      ->check(whole_between(1, 1 << 20))
      ->capture_default_str();
  verb.add_option("--global-batch", flags->global_batch, "Of --plan: sequences of a step, on all GPUs")
      ->check(whole_between(1, 1 << 24))
      ->capture_default_str();
  verb.add_option("--gpu-memory", flags->gpu_gb, "Of --plan: GB of a GPU")
      ->check(above_zero())
      ->capture_default_str();
  return flags;
}

std::string training_plan_text(const TrainingPlanFlags& flags, const std::string& nccl_profile) {
  const launch::TrainingRun run{.model        = value_or_usage_error(launch::find_model_shape(flags.shape)),
                                .mesh         = value_or_usage_error(comm::parse_mesh(flags.mesh)),
                                .domain       = flags.domain,
                                .sequence     = flags.sequence,
                                .micro_batch  = flags.micro_batch,
                                .global_batch = flags.global_batch,
                                .gpu_bytes    = flags.gpu_gb * 1e9};
  const launch::TrainingPlan plan = value_or_usage_error(launch::plan_training(run));
  std::string text =
      fmt::format("Modelled, not measured: {}, {:.2f} billion parameters, on {} ranks ({})\n\n",
                  run.model.name, run.model.parameters() * 1e-9, plan.ranks, comm::to_string(run.mesh));
  text += to_text(axes_table(plan)) + "\n" + to_text(ranks_table(plan, run.domain)) + "\n" +
          to_text(memory_table(plan, run.gpu_bytes)) + "\n";
  text += wrapped(
      fmt::format("A step is {} micro-batches of {} x {} tokens for each pipeline, {:.0f} Tflop for "
                  "each rank; a pipeline stage idles {:.0f} % of its time.",
                  plan.micro_batches, run.micro_batch, run.sequence, plan.flops * 1e-12, 100 * plan.bubble));
  if (nccl_profile.empty()) return text;
  return text + "\n" + to_shell(value_or_usage_error(launch::find_nccl_profile(nccl_profile)));
}

}  // namespace fathom::cli
