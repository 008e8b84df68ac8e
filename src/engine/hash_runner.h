// For tests: a runner whose model is a hash of all tokens so far, kept in the pages: a wrong token, row or
// page changes every later token.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/model_runner.h"

namespace fathom::engine {

inline constexpr int64_t kVocab = 384;

inline uint64_t mixed(uint64_t before, model::TokenId token) {
  uint64_t z = before * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(token) + 1;
  z          = (z ^ (z >> 31)) * 0xBF58476D1CE4E5B9ull;
  return z ^ (z >> 29);
}
inline model::TokenId token_of(uint64_t hash) { return static_cast<model::TokenId>(hash % kVocab); }

struct Counts {
  int64_t steps = 0, followed = 0, ended_in_flight = 0;
};

// Computes a step when it is launched. Steps run in order, as on a stream.
class HashRunner : public ModelRunner {
 public:
  // This step of those launched, the first is 0, computes nothing and fails.
  void fail_at(int64_t step) { failing_ = step; }

  HashRunner(const EngineConfig& config, const std::array<int64_t, kKvKinds>& pages, bool follows,
             Counts& counts)
      : page_size_(config.page_size), follows_(follows), counts_(counts) {
    for (int kind = 0; kind < kKvKinds; ++kind)
      cache_[static_cast<size_t>(kind)].resize(
          static_cast<size_t>(pages[static_cast<size_t>(kind)] * page_size_));
  }

  bool can_overlap(const SchedulerOutput&) const override { return follows_ && steps_in_flight_.size() == 1; }

  void execute_model(const SchedulerOutput& step) override {
    ASSERT_LE(steps_in_flight_.size(), follows_ ? 1u : 0u);
    counts_.followed += !steps_in_flight_.empty();
    std::vector<Computed> step_results;
    if (counts_.steps++ == failing_) {
      sampled_.clear();
      for (const ScheduledSequence& scheduled : step.sequences) {
        step_results.push_back({.id = scheduled.sequence->id, .samples = false, .token = 0, .failed = true});
        sampled_[scheduled.sequence->id] = 0;
      }
      steps_in_flight_.push_back(std::move(step_results));
      return;
    }
    std::unordered_map<RequestId, model::TokenId> chosen;
    for (const ScheduledSequence& scheduled : step.sequences) {
      const Sequence& sequence = *scheduled.sequence;
      uint64_t hash            = 0;
      for (int64_t p = scheduled.first; p < scheduled.first + scheduled.rows; ++p) {
        model::TokenId token = 0;
        if (p < sequence.num_tokens()) {
          token = sequence.tokens[static_cast<size_t>(p)];
        } else {
          ASSERT_EQ(p, sequence.num_tokens()) << "a token further than the next is needed";
          ASSERT_TRUE(sampled_.contains(sequence.id)) << "no step yields the token that is needed";
          token = sampled_[sequence.id];
        }
        const uint64_t before = p == 0 ? 1 : at(kFull, sequence, p - 1);
        if (p > 0 && failing_ < 0) {
          EXPECT_EQ(at(kWindow, sequence, p - 1), before) << "the window's pages are others";
        }
        hash = at(kFull, sequence, p) = at(kWindow, sequence, p) = mixed(before ^ weights_, token);
      }
      step_results.push_back({sequence.id, scheduled.samples, token_of(hash)});
      if (scheduled.samples) chosen[sequence.id] = token_of(hash);
    }
    sampled_ = std::move(chosen);
    steps_in_flight_.push_back(std::move(step_results));
  }

  std::vector<SequenceOutput> get_output(const SchedulerOutput& step) override {
    const std::vector<Computed> step_results = std::move(steps_in_flight_.front());
    steps_in_flight_.pop_front();
    EXPECT_EQ(step.sequences.size(), step_results.size());
    std::vector<SequenceOutput> outputs(step_results.size());
    for (size_t e = 0; e < step_results.size(); ++e) {
      if (step_results[e].failed) outputs[e].error = "the step failed";
      if (!step.sequences[e].sequence) {
        ++counts_.ended_in_flight;
        continue;
      }
      EXPECT_EQ(step.sequences[e].sequence->id, step_results[e].id);
      if (step_results[e].samples) outputs[e].tokens.push_back({.id = step_results[e].token});
    }
    return outputs;
  }

  Status swap_weights(std::vector<model::ProcessedWeights>&) override {
    EXPECT_TRUE(steps_in_flight_.empty());
    ++weights_;
    return Ok{};
  }

  std::string device_name() const override { return "a hash"; }
  int threads() const override { return 1; }
  double forward_s() const override { return 0; }
  double sample_s() const override { return 0; }

 private:
  struct Computed {
    RequestId id;
    bool samples;
    model::TokenId token;
    bool failed = false;
  };

  uint64_t& at(KvKind kind, const Sequence& sequence, int64_t position) {
    const auto& pages = sequence.pages.block_tables[kind].pages;
    return cache_[kind].at(static_cast<size_t>(
        pages.at(static_cast<size_t>(position / page_size_)) * page_size_ + position % page_size_));
  }

  const int64_t page_size_;
  const bool follows_;
  int64_t failing_  = -1;
  uint64_t weights_ = 0;  // how often they were swapped
  Counts& counts_;
  std::array<std::vector<uint64_t>, kKvKinds> cache_;
  std::unordered_map<RequestId, model::TokenId> sampled_;  // tokens of the latest step
  std::deque<std::vector<Computed>> steps_in_flight_;
};

}  // namespace fathom::engine
