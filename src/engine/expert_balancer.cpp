#include "engine/expert_balancer.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "core/expect.h"

namespace fathom::engine {
namespace {

// What a move costs. A guess, not a measurement: a token that is decoded alone reads its expert's weights
// once, which is what a move costs; tokens of a prompt share one reading, and many of them take as long.
constexpr int64_t kTokensOfAMove = 16;

// Physical slots in order hold experts in order, and then again from the first. An expert's slots are
// `experts` apart, and a rank has fewer, so its replicas lie on different ranks.
ExpertPlacement placement_in_order(int64_t experts, int64_t ranks, int64_t replicas) {
  ExpertPlacement placement(static_cast<size_t>(ranks));
  for (int64_t r = 0; r < ranks; ++r)
    for (int64_t slot = replicas * r / ranks; slot < replicas * (r + 1) / ranks; ++slot)
      placement[static_cast<size_t>(r)].push_back(static_cast<int32_t>(slot % experts));
  return placement;
}

}  // namespace

ExpertBalancer::ExpertBalancer(int64_t layers, int64_t experts, int64_t ranks,
                               const EngineConfig::Eplb& config, Log log)
    : experts_(experts),
      ranks_(ranks),
      config_(config),
      log_(std::move(log)),
      placements_(static_cast<size_t>(layers),
                  placement_in_order(experts, ranks, experts + config.num_redundant_experts)),
      last_rank_load_(static_cast<size_t>(layers * ranks), 0) {
  FATHOM_EXPECT(
      config.window_size >= 1 && config.step_interval >= 1 && config.num_redundant_experts >= 0 &&
          config.num_redundant_experts <= experts * (ranks - 1),
      "a window and an interval have at least one step, and a rank has at most one replica of an expert");
}

bool ExpertBalancer::after_step(View<const int64_t, 2> expert_load, View<const int64_t, 2> rank_load) {
  const auto start = std::chrono::steady_clock::now();
  FATHOM_EXPECT(expert_load.extent(0) == std::ssize(placements_) && expert_load.extent(1) == experts_ &&
                    rank_load.extent(0) == std::ssize(placements_) && rank_load.extent(1) == ranks_,
                "loads are of all layers, experts and ranks");
  ++steps_;
  const StepBalance balance = balance_of_step(rank_load);
  if (log_ && config_.log_balancedness && steps_ % config_.log_balancedness_interval == 0) log_(balance);

  bool changed = false;
  if (steps_ % config_.step_interval == 0) {
    const std::vector<int64_t> load = window_load(expert_load);
    changed                         = replan({load.data(), {expert_load.extent(0), experts_}});
  }
  // A window begins here if a plan follows window_size steps later.
  if ((steps_ + config_.window_size) % config_.step_interval == 0)
    window_begins_.emplace_back(expert_load.data(), expert_load.data() + expert_load.size());
  stats_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return changed;
}

ExpertBalancer::StepBalance ExpertBalancer::balance_of_step(View<const int64_t, 2> rank_load) {
  StepBalance balance{.step = steps_};
  for (int64_t l = 0; l < rank_load.extent(0); ++l) {
    int64_t sum = 0, most = 0;
    for (int64_t r = 0; r < ranks_; ++r) {
      int64_t& last        = last_rank_load_[static_cast<size_t>(l * ranks_ + r)];
      const int64_t tokens = rank_load(l, r) - std::exchange(last, rank_load(l, r));
      sum += tokens;
      most = std::max(most, tokens);
    }
    balance.mean_tokens += static_cast<double>(sum) / static_cast<double>(ranks_);
    balance.max_tokens += most;
  }
  if (balance.max_tokens > 0)
    balance.balancedness = balance.mean_tokens / static_cast<double>(balance.max_tokens);
  stats_.mean_rank_tokens += balance.mean_tokens;
  stats_.max_rank_tokens += balance.max_tokens;
  interval_mean_ += balance.mean_tokens;
  interval_max_ += balance.max_tokens;
  return balance;
}

// Tokens of experts in the latest window_size steps, or in all steps where there were fewer.
std::vector<int64_t> ExpertBalancer::window_load(View<const int64_t, 2> expert_load) {
  std::vector<int64_t> load(expert_load.data(), expert_load.data() + expert_load.size());
  if (steps_ <= config_.window_size) return load;
  for (size_t i = 0; i < load.size(); ++i) load[i] -= window_begins_.front()[i];
  window_begins_.pop_front();
  return load;
}

bool ExpertBalancer::replan(View<const int64_t, 2> load) {
  // In units of a token's work. An observation is a window, and a plan serves step_interval / window of them,
  // which need not be whole.
  const auto windows =
      static_cast<double>(config_.step_interval) / static_cast<double>(std::min(steps_, config_.window_size));
  const ExpertPlanner::Options options{
      .shape                = {.ranks    = static_cast<int>(ranks_),
                               .replicas = static_cast<int>(experts_ + config_.num_redundant_experts)},
      .smoothing            = 0,  // the window is the forecast
      .ns_of_token          = windows,
      .horizon_observations = 1,
      .expert_bytes         = kTokensOfAMove,
      .copied_bytes_of_a_ns = 1};
  bool changed = false;
  for (size_t l = 0; l < placements_.size(); ++l) {
    ExpertPlanner planner(static_cast<int>(experts_), placements_[l], options);
    planner.observe({&load(static_cast<int64_t>(l), 0), static_cast<size_t>(experts_)});
    const ExpertPlanner::Plan plan = planner.replan();
    ++(plan.taken ? stats_.plans_taken : stats_.plans_refused);
    if (!plan.taken) continue;
    stats_.experts_moved += copies_between(placements_[l], plan.placement).total;
    placements_[l] = plan.placement;
    changed        = true;
  }
  if (interval_max_ > 0) stats_.balancedness = interval_mean_ / static_cast<double>(interval_max_);
  interval_mean_ = 0;
  interval_max_  = 0;
  return changed;
}

}  // namespace fathom::engine
