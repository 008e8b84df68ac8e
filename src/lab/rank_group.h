// The ranks of an experiment as processes or threads of this host: starting them, the memory they share, a
// barrier, and an end for all of them where one dies.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "lab/experiment_info.h"
#include "lab/record.h"
#include "lab/verified_call.h"

namespace fathom::lab {

inline constexpr int kMaxRanks = 64;

// Thrown where a rank waits for another that is gone.
class GroupBroken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a rank tells the others, in memory that all see.
class RankSlot {
 public:
  double step_ns = 0, limit_ns = 0, floor_ns = 0, elapsed_s = 0;
  uint64_t nonce = 0, nonce_sum = 0;
  int64_t elements = 0;  // compared, of the last step that was looked at
  double max_error = 0, tolerance = 0;
  const Problem* problem = nullptr;  // of the present step; for ranks that are threads of one process

  void clear_failure() { failed_ = Failed::no; }
  void fail(const Caught& caught);
  void fail(const Skip& skip);
  std::optional<Caught> caught() const;
  std::optional<Skip> skip() const;

 private:
  enum class Failed { no, caught, skip } failed_ = Failed::no;
  Outcome outcome_                               = Outcome::ok;
  char what_[64] = {}, detail_[512] = {};
};

class RankGroup {
 public:
  RankGroup(int size, RanksAs ranks_as, int64_t shared_bytes);
  ~RankGroup();
  RankGroup(const RankGroup&)            = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  // Runs `rank_main` on every rank and returns when all have ended; false where one died or gave up.
  // `on_line` gets what rank 0 says with say(), in this process.
  bool run(const std::function<void(int rank)>& rank_main,
           const std::function<void(const std::string&)>& on_line);

  // For ranks.
  int size() const { return size_; }
  RanksAs ranks_as() const { return ranks_as_; }
  void barrier();
  void abandon();  // nobody waits for this rank any more
  void say(const std::string& line);
  RankSlot& slot(int rank);
  std::span<std::byte> shared() const;
  // The variant that runs, for blame; -1: none. Rank 0 sets it.
  std::atomic<int>& variant();
  // How a rank ended that died without a word.
  const std::string& death() const { return death_; }

 private:
  struct Board;
  bool run_processes(const std::function<void(int rank)>& rank_main);
  bool run_threads(const std::function<void(int rank)>& rank_main);

  int size_;
  RanksAs ranks_as_;
  size_t bytes_;
  Board* board_;
  std::function<void(const std::string&)> on_line_;
  int line_fd_ = -1;  // in a rank that is a process
  std::string death_;
};

}  // namespace fathom::lab
