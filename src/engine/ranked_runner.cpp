#include "engine/ranked_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <span>
#include <utility>

#include "comm/thread_group.h"
#include "core/cpus.h"
#include "core/expect.h"
#include "core/thread_pool.h"
#include "model/contiguous_experts.h"
#include "model/expert_table.h"

namespace fathom::engine {

using namespace std::chrono_literals;

namespace {

void log_balancedness(const ExpertBalancer::StepBalance& step) {
  fmt::print(stderr, "EPLB step {}: avg_tokens={:.2f}, max_tokens={}, balancedness={:.4f}\n", step.step,
             step.mean_tokens, step.max_tokens, step.balancedness);
}

}  // namespace

RankedRunner::RankedRunner(const model::Checkpoint& checkpoint, const EngineConfig& config,
                           const std::array<int64_t, kKvKinds>& pages, const comm::GroupOptions& options,
                           MakeGroups make_groups)
    : options_(options),
      tensor_ranks_(static_cast<size_t>(config.tensor_parallel)),
      sampler_(static_cast<size_t>(config.ranks() - config.tensor_parallel)),
      make_groups_(make_groups ? std::move(make_groups)
                               : [config, options] { return make_rank_groups(config, options); }),
      kv_heads_(checkpoint.config.num_key_value_heads),
      head_bytes_(checkpoint.config.head_dim * int64_t{sizeof(float)}),
      experts_(checkpoint.config.num_local_experts) {
  model::ContiguousExperts shared;
  if (config.eplb.enabled) {
    ThreadPool threads(config.threads > 0 ? config.threads : host_threads());
    shared                = model::with_contiguous_experts(checkpoint.weights, threads);
    shared_experts_bytes_ = shared.copied_bytes;
  }
  for (int64_t rank = 0; rank < config.ranks(); ++rank)
    ranks_.push_back(std::make_unique<CpuRunner>(checkpoint, config, pages, rank,
                                                 config.eplb.enabled ? &shared.weights : nullptr));
  read_counts();
  if (!config.eplb.enabled) return;
  balancer_.emplace(checkpoint.config.num_hidden_layers, experts_, config.tensor_parallel, config.eplb,
                    log_balancedness);
  place_experts(balancer_->placements());
}

void RankedRunner::place_experts(const std::vector<ExpertPlacement>& placements) {
  std::vector<model::ExpertTable::Layer> layers;
  for (const ExpertPlacement& placement : placements)
    layers.push_back(ranks_of_experts(placement, static_cast<int>(experts_)));
  const auto table = std::make_shared<const model::ExpertTable>(std::ssize(ranks_), layers);
  for (const auto& rank : ranks_) rank->place_experts(table);
  read_counts();
}

void RankedRunner::execute_model(const SchedulerOutput& step) {
  failure_.reset();
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r]->in_flight()) continue;  // unless an earlier step gave it up
    if (ranks_[r]->wait_for(0ms)) {
      (void)ranks_[r]->get_output(step);
      continue;
    }
    const int rank = static_cast<int>(r);

    failure_ = {.rank      = rank,
                .operation = {},
                .text = fmt::format("rank {} has not come back from a step that was given up: restart the "
                                    "program if it does not",
                                    rank)};
    return;
  }
  if (!joined_) {
    auto groups = make_groups_();
    for (size_t r = 0; r < ranks_.size(); ++r) ranks_[r]->join(std::move(groups[r]));
    joined_ = true;
  }
  for (const auto& rank : ranks_) rank->execute_model(step);
}

std::vector<SequenceOutput> RankedRunner::get_output(const SchedulerOutput& step) {
  std::vector<SequenceOutput> outputs(step.sequences.size());
  if (!failure_) {
    wait_for_ranks();
    failure_ = failure_of_ranks();
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (ranks_[r]->wait_for(0ms)) {
        auto of_rank = ranks_[r]->get_output(step);
        if (r == sampler_) outputs = std::move(of_rank);
      } else {
        ranks_[r]->give_up_step();
      }
    if (failure_) joined_ = false;
    if (std::ranges::none_of(ranks_, [](const auto& rank) { return rank->in_flight(); })) read_counts();
    // All ranks are idle, unless one failed.
    if (!failure_ && balancer_ && balancer_->after_step(expert_load(), rank_load()))
      place_experts(balancer_->placements());
  }
  if (failure_)
    for (SequenceOutput& output : outputs) output = {.error = failure_->text};
  return outputs;
}

// Returns when all are done, or when one has failed and the others have had the time of an operation since.
void RankedRunner::wait_for_ranks() {
  for (bool failed = false; !failed;) {
    bool all = true;
    for (const auto& rank : ranks_) {
      const bool done = rank->wait_for(all ? options_.timeout : 0ms);
      failed |= done && rank->failure();
      all &= done;
    }
    if (all) return;
  }
  const auto deadline = std::chrono::steady_clock::now() + options_.timeout;
  for (const auto& rank : ranks_)
    rank->wait_for(std::max(
        0ms, std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())));
}

// A group numbers its own ranks. Where there are stages of several ranks, its text needs its group's name.
RankFailure RankedRunner::failure_seen_by(size_t rank, const comm::GroupError& error) const {
  const auto width = static_cast<int>(tensor_ranks_), stage = static_cast<int>(rank) / width,
             place       = static_cast<int>(rank) % width;
  const bool of_pipeline = error.operation() == comm::Operation::message;
  RankFailure failure{.rank      = of_pipeline ? error.rank() * width + place : stage * width + error.rank(),
                      .operation = error.operation(),
                      .text      = error.what()};
  if (width > 1 && ranks_.size() > tensor_ranks_)
    failure.text = of_pipeline ? fmt::format("among rank {} of every stage, {}", place, failure.text)
                               : fmt::format("in stage {}, {}", stage, failure.text);
  return failure;
}

// What a rank threw itself says more than what the others saw of it. Ranks that are not done do not count.
std::optional<RankFailure> RankedRunner::failure_of_ranks() const {
  std::optional<RankFailure> seen, thrown;
  bool seen_at_fault = false;  // that rank hangs: others wait for ranks that wait in another group
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r]->wait_for(0ms) || !ranks_[r]->failure()) continue;
    try {
      std::rethrow_exception(ranks_[r]->failure());
    } catch (const comm::GroupError& error) {
      const RankFailure failure = failure_seen_by(r, error);
      const bool at_fault       = !ranks_[static_cast<size_t>(failure.rank)]->wait_for(0ms);
      if (!seen || (at_fault && !seen_at_fault)) seen = failure, seen_at_fault = at_fault;
    } catch (const std::exception& error) {
      if (!thrown)
        thrown = {.rank      = static_cast<int>(r),
                  .operation = {},
                  .text      = fmt::format("rank {} failed: {}", r, error.what())};
    }
  }
  if (!thrown) return seen;
  if (seen) {
    thrown->operation = seen->operation;
    thrown->text += "; " + seen->text;
  }
  return thrown;
}

std::string RankedRunner::device_name() const {
  const size_t stages    = ranks_.size() / tensor_ranks_;
  const std::string each = tensor_ranks_ == 1
                               ? ranks_[0]->device_name()
                               : fmt::format("{} ranks of {}", tensor_ranks_, ranks_[0]->device_name());
  return stages == 1 ? each : fmt::format("{} stages of {}", stages, each);
}

int RankedRunner::threads() const { return static_cast<int>(ranks_.size()) * ranks_[0]->threads(); }

// The checkpoint's files are mapped once.
MemoryUse RankedRunner::memory() const {
  MemoryUse use{.weights = ranks_[0]->memory().weights, .workspace = shared_experts_bytes_};
  for (const auto& rank : ranks_) {
    use.kv_cache += rank->memory().kv_cache;
    use.workspace += rank->memory().workspace;
  }
  return use;
}

Status RankedRunner::swap_weights(std::vector<model::ProcessedWeights>& weights) {
  for (size_t r = 0; r < ranks_.size(); ++r)
    if (ranks_[r]->in_flight() && !ranks_[r]->wait_for(0ms))
      return Error{fmt::format(
          "rank {} has not come back from a step that was given up, and may still read the weights: restart "
          "the program if it does not",
          r)};
  for (const auto& rank : ranks_) (void)rank->swap_weights(weights);
  return Ok{};
}

RankedRunner::Load RankedRunner::load_of_all_layers(View<const int64_t, 2> (CpuRunner::*load)() const) const {
  Load all;
  for (size_t r = 0; r < ranks_.size(); r += tensor_ranks_) {
    const View<const int64_t, 2> of_stage = (*ranks_[r].*load)();
    all.numbers.insert(all.numbers.end(), of_stage.data(), of_stage.data() + of_stage.size());
    all.columns = of_stage.extent(1);
  }
  return all;
}

void RankedRunner::read_counts() {
  expert_load_ = load_of_all_layers(&CpuRunner::expert_load);
  rank_load_   = load_of_all_layers(&CpuRunner::rank_load);
  forward_s_   = ranks_[sampler_]->forward_s();
  sample_s_    = ranks_[sampler_]->sample_s();
}

// Of all heads, in the layers of the rank's stage.
int64_t RankedRunner::kv_block_bytes_of_stage(KvKind kind, size_t rank) const {
  return ranks_[rank]->kv_block_bytes(kind) / ranks_[rank]->kv_heads() * kv_heads_;
}

int64_t RankedRunner::kv_block_bytes(KvKind kind) const {
  int64_t bytes = 0;
  for (size_t r = 0; r < ranks_.size(); r += tensor_ranks_) bytes += kv_block_bytes_of_stage(kind, r);
  return bytes;
}

// Of a block of all heads and of a rank's block: where the bytes of the rank's heads lie, for each layer,
// half and position.
struct RankedRunner::HeadPiece {
  size_t of_all, of_rank, bytes;
};

std::vector<RankedRunner::HeadPiece> RankedRunner::head_pieces(KvKind kind, size_t rank) const {
  const int64_t heads = ranks_[rank]->kv_heads(), bytes = heads * head_bytes_;
  const int64_t first =
      kv_heads_ * static_cast<int64_t>(rank % tensor_ranks_) / static_cast<int64_t>(tensor_ranks_);
  int64_t earlier_layers = 0;  // bytes
  for (size_t r = 0; r < first_rank_of_stage(rank); r += tensor_ranks_)
    earlier_layers += kv_block_bytes_of_stage(kind, r);
  std::vector<HeadPiece> pieces;
  for (int64_t p = 0; p < ranks_[rank]->kv_block_bytes(kind) / bytes; ++p)
    pieces.push_back({.of_all  = static_cast<size_t>(earlier_layers + (p * kv_heads_ + first) * head_bytes_),
                      .of_rank = static_cast<size_t>(p * bytes),
                      .bytes   = static_cast<size_t>(bytes)});
  return pieces;
}

void RankedRunner::read_kv_block(KvKind kind, Page page, std::span<std::byte> to) const {
  std::vector<std::byte> block;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    block.resize(static_cast<size_t>(ranks_[r]->kv_block_bytes(kind)));
    ranks_[r]->read_kv_block(kind, page, block);
    for (const HeadPiece& piece : head_pieces(kind, r))
      std::memcpy(to.data() + piece.of_all, block.data() + piece.of_rank, piece.bytes);
  }
}

void RankedRunner::write_kv_block(KvKind kind, Page page, std::span<const std::byte> from) {
  std::vector<std::byte> block;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    block.resize(static_cast<size_t>(ranks_[r]->kv_block_bytes(kind)));
    for (const HeadPiece& piece : head_pieces(kind, r))
      std::memcpy(block.data() + piece.of_rank, from.data() + piece.of_all, piece.bytes);
    ranks_[r]->write_kv_block(kind, page, block);
  }
}

std::vector<RankGroups> make_rank_groups(const EngineConfig& config, const comm::GroupOptions& options) {
  const auto stages = static_cast<size_t>(config.pipeline_parallel),
             width  = static_cast<size_t>(config.tensor_parallel);
  std::vector<RankGroups> groups(stages * width);
  for (size_t s = 0; s < stages && width > 1; ++s) {
    auto of_stage = comm::make_thread_groups(static_cast<int>(width), options);
    for (size_t t = 0; t < width; ++t) groups[s * width + t].tensor = std::move(of_stage[t]);
  }
  for (size_t t = 0; t < width && stages > 1; ++t) {
    auto of_place = comm::make_thread_groups(static_cast<int>(stages), options);
    for (size_t s = 0; s < stages; ++s) groups[s * width + t].pipeline = std::move(of_place[s]);
  }
  return groups;
}

}  // namespace fathom::engine
