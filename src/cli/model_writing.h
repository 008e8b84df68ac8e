// What the verbs that write a model's folder have in common: which folder, and how far they are.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <string>

#include "cli/progress.h"

namespace fathom::cli {

struct TargetFlags {
  std::string folder;
  bool force = false;
};

void add_target_flags(CLI::App& verb, TargetFlags& flags);

// Throws UsageError where the folder holds a model already, unless --force says to replace it. One in shards
// is never replaced: what is written here is one file, which the shards' index would hide.
void expect_room_for_model(const TargetFlags& flags);

// Of writing one large file. Says nothing in the first second.
class WritingProgress {
 public:
  explicit WritingProgress(std::string file);
  void show(int64_t bytes_done, int64_t bytes_total);
  void clear() { display_.clear(); }
  double seconds() const;  // since the beginning

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::string file_;
  ProgressDisplay display_;
};

}  // namespace fathom::cli
