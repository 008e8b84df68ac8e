// Compiled programs by content: programs that compute the same with the same types share an executable,
// whatever they and their inputs are called and wherever they were written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "compile/executable.h"

namespace fathom::compile {

// One thread at a time: an executable keeps the memory of its last call.
class CompileCache {
 public:
  // Of every executable; none: default schedules.
  explicit CompileCache(Scheduler scheduler = {}) : scheduler_(std::move(scheduler)) {}

  // In canonical form and fused, or with a launch for each kernel; compiled where it is not known yet.
  std::shared_ptr<Executable> compiled(const Graph& graph, bool fused = true);

  int64_t compilations() const { return compilations_; }
  int64_t hits() const { return hits_; }

 private:
  Scheduler scheduler_;
  std::unordered_map<std::string, std::shared_ptr<Executable>> known_;  // by content, and how
  int64_t compilations_ = 0, hits_ = 0;
};

}  // namespace fathom::compile
