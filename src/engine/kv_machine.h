// For tests of the scheduler: a machine without a model, whose keys and values say what they are of.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/scheduler.h"

namespace fathom::engine {

inline constexpr int64_t kWindow8 = 8;

// A machine that stores in every slot of every page which prefix of which sequence its keys and values belong
// to. A row that attends to a slot with anything else would compute a wrong answer.
class KvMachine {
 public:
  KvMachine(const EngineConfig& config, const BlockManager::Options& options) : page_size_(config.page_size) {
    for (int kind = 0; kind < kKvKinds; ++kind)
      slots_[kind].resize(static_cast<size_t>(options.pages[kind] * page_size_));
  }

  // Copies the block tables, as a runner does: by the time the step runs, the next one has been scheduled.
  void execute_model(const SchedulerOutput& step) {
    pages_.clear();
    for (const ScheduledSequence& scheduled : step.sequences) pages_.push_back(scheduled.sequence->pages);
  }

  void run(const SchedulerOutput& step) {
    for (size_t e = 0; e < step.sequences.size(); ++e) {
      const ScheduledSequence& scheduled = step.sequences[e];
      const SequencePages& pages         = pages_[e];
      const Sequence& sequence           = *scheduled.sequence;
      std::vector<model::TokenId> tokens(sequence.tokens.begin(),
                                         sequence.tokens.begin() + scheduled.first + scheduled.rows -
                                             static_cast<int64_t>(scheduled.drafts.size()));
      tokens.insert(tokens.end(), scheduled.drafts.begin(), scheduled.drafts.end());
      const std::vector<uint64_t> beginnings = beginnings_of(tokens, sequence.request.cache_salt);
      const auto of                          = [&](int64_t p) { return beginnings[static_cast<size_t>(p)]; };
      // All rows write before any reads, as in a forward pass.
      for (int64_t row = scheduled.first; row < scheduled.first + scheduled.rows; ++row)
        for (int kind = 0; kind < kKvKinds; ++kind) slot(pages, kind, row) = {of(row), steps_, sequence.id};
      for (int64_t row = scheduled.first; row < scheduled.first + scheduled.rows; ++row)
        for (int kind = 0; kind < kKvKinds; ++kind)
          for (int64_t p = kind == kFull ? 0 : std::max<int64_t>(row - kWindow8 + 1, 0); p <= row; ++p) {
            const Slot& read = slot(pages, kind, p);
            ASSERT_EQ(read.holds, of(p)) << "group " << kind << ", position " << p << " seen from " << row;
            ASSERT_TRUE(scheduled.reads_rows_of_step || read.step < steps_ || read.by == sequence.id)
                << "reads what another sequence writes in this step, and does not say so";
          }
    }
    ++steps_;
  }

 private:
  struct Slot {
    uint64_t holds = 0;  // a number for the tokens up to its position
    int64_t step   = -1;
    RequestId by   = 0;
  };

  Slot& slot(const SequencePages& pages, int kind, int64_t position) {
    const Page page = pages.block_tables[kind].pages.at(static_cast<size_t>(position / page_size_));
    EXPECT_GE(page, 0) << "a page behind the window is reached";
    return slots_[kind].at(static_cast<size_t>(page * page_size_ + position % page_size_));
  }
  // A hash of each prefix of the tokens, and of the salt.
  static std::vector<uint64_t> beginnings_of(const std::vector<model::TokenId>& tokens,
                                             const std::string& salt) {
    std::vector<uint64_t> numbers;
    uint64_t number = std::hash<std::string>()(salt);
    for (const model::TokenId token : tokens)
      numbers.push_back(number = (number ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15u + 1);
    return numbers;
  }

  int64_t page_size_, steps_ = 0;
  std::vector<SequencePages> pages_;  // by sequence of the step in flight
  std::array<std::vector<Slot>, kKvKinds> slots_;
};

// The next token as a function of the tokens so far, with much repetition so that some drafts are accepted.
inline model::TokenId next_token(const std::vector<model::TokenId>& tokens) {
  const size_t n = tokens.size();
  return static_cast<model::TokenId>((n % 7 == 0 ? n / 7 : static_cast<size_t>(tokens.back()) + 1) % 5);
}

inline void expect_each_page_is_owned_as_often_as_it_is_held(const BlockManager& blocks,
                                                             const Scheduler& scheduler) {
  for (int kind = 0; kind < kKvKinds; ++kind) {
    std::map<Page, int> holders;
    for (const Sequence* sequence : scheduler.sequences())
      for (const Page page : sequence->pages.block_tables[kind].pages)
        if (page >= 0) ++holders[page];
    const BlockPool& pool = blocks.pool(static_cast<KvKind>(kind));
    ASSERT_EQ(static_cast<int64_t>(holders.size()) + pool.free_pages(), pool.pages());
    for (const auto& [page, count] : holders) ASSERT_EQ(pool.ref_count(page), count) << "page " << page;
  }
}

}  // namespace fathom::engine
