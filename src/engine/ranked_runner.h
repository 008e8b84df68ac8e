// Runs steps on several ranks of this process, each a runner with its part of the model (model/shard.h) and
// its part of the KV cache. All ranks execute the plan of one scheduler: twice a layer those of a stage sum
// their parts, and once a step those of the last stage gather the logits, from which its first rank samples.
//
// With several stages a step's rows go through them in micro-batches, as messages between ranks with the same
// place in neighbouring stages. A stage begins with a micro-batch when it comes, and no stage begins the next
// step before the last one has sampled.
//
// With expert parallelism the batch is the same on all ranks, so no token travels: a rank computes what its
// own experts add, and the sum that tensor parallelism has anyway joins them. With EPLB experts move between
// ranks after a step (engine/expert_balancer.h): another table says who computes what, and no weight is
// copied.
//
// A rank that throws leaves its group; one that does not come to an operation in time is given up. Either
// ends the step, whose sequences get the failure's text, and the next step begins in a new group. While a
// rank that was given up has not come back, steps fail at once.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/group.h"
#include "engine/config.h"
#include "engine/cpu_runner.h"
#include "engine/expert_balancer.h"
#include "engine/model_runner.h"

namespace fathom::engine {

struct RankFailure {
  int rank = 0;                              // whose fault it is
  std::optional<comm::Operation> operation;  // in which the others were; none where nobody waited
  std::string text;
};

class RankedRunner final : public ModelRunner {
 public:
  using MakeGroups = std::function<std::vector<RankGroups>()>;  // for each rank

  // config.ranks() ranks. A step that fails ends within three timeouts of `options`. Tests give groups of
  // their own; others get make_rank_groups().
  RankedRunner(const model::Checkpoint& checkpoint, const EngineConfig& config,
               const std::array<int64_t, kKvKinds>& pages, const comm::GroupOptions& options,
               MakeGroups make_groups = {});

  bool can_overlap(const SchedulerOutput&) const override { return false; }
  void execute_model(const SchedulerOutput& step) override;
  std::vector<SequenceOutput> get_output(const SchedulerOutput& step) override;
  // Why the latest step failed; none where it did not.
  const std::optional<RankFailure>& failure() const { return failure_; }

  Proposer* proposer() override { return ranks_[0]->proposer(); }
  std::string device_name() const override;
  int threads() const override;
  MemoryUse memory() const override;
  // These, and the seconds, are those of the latest step after which all ranks were idle.
  View<const int64_t, 2> expert_load() const override { return expert_load_.view(); }
  View<const int64_t, 2> rank_load() const override { return rank_load_.view(); }
  const EplbStats* eplb() const override { return balancer_ ? &balancer_->stats() : nullptr; }
  // [layer]: from the next step on ranks compute these experts. With config.eplb, and not while a step is in
  // flight. For tests; steps do it themselves.
  void place_experts(const std::vector<ExpertPlacement>& placements);
  // Refuses while a rank that was given up has not come back.
  Status swap_weights(std::vector<model::ProcessedWeights>& ranks) override;
  // As one rank has them, so that blocks travel between engines of any number of ranks.
  int64_t kv_block_bytes(KvKind kind) const override;
  void read_kv_block(KvKind kind, Page page, std::span<std::byte> to) const override;
  void write_kv_block(KvKind kind, Page page, std::span<const std::byte> from) override;
  double forward_s() const override { return forward_s_; }
  double sample_s() const override { return sample_s_; }

 private:
  struct HeadPiece;

  void wait_for_ranks();
  std::optional<RankFailure> failure_of_ranks() const;
  RankFailure failure_seen_by(size_t rank, const comm::GroupError& error) const;
  std::vector<HeadPiece> head_pieces(KvKind kind, size_t rank) const;
  size_t first_rank_of_stage(size_t rank) const { return rank - rank % tensor_ranks_; }
  int64_t kv_block_bytes_of_stage(KvKind kind, size_t rank) const;
  // Rows of all layers: of every stage, one behind another.
  struct Load {
    std::vector<int64_t> numbers;
    int64_t columns = 1;

    View<const int64_t, 2> view() const { return {numbers.data(), {std::ssize(numbers) / columns, columns}}; }
  };
  // Precondition of both: no rank is in a step.
  Load load_of_all_layers(View<const int64_t, 2> (CpuRunner::*load)() const) const;
  void read_counts();

  const comm::GroupOptions options_;
  const size_t tensor_ranks_, sampler_;  // the rank that samples
  const MakeGroups make_groups_;
  const int64_t kv_heads_, head_bytes_, experts_;
  std::vector<std::unique_ptr<CpuRunner>> ranks_;
  Load expert_load_, rank_load_;
  double forward_s_ = 0, sample_s_ = 0;
  std::optional<ExpertBalancer> balancer_;  // with EPLB
  int64_t shared_experts_bytes_ = 0;        // copies of experts that all ranks read, with EPLB
  bool joined_                  = false;    // the ranks have a group in which no step has failed
  std::optional<RankFailure> failure_;
};

// Groups of threads for config.ranks() ranks.
std::vector<RankGroups> make_rank_groups(const EngineConfig& config, const comm::GroupOptions& options);

}  // namespace fathom::engine
