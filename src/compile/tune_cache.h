// What a tuner found, in files that stay: $XDG_CACHE_HOME/fathom/compile (~/.cache where it is unset), a file
// for each program, bucket of extents and number of threads on a machine.
//
// Files appear whole or not at all, so that processes may write the same one at once: the last stays. A file
// that is damaged, or of another machine, version or program than its name says, is ignored with a warning
// that names it.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compile/tune.h"

namespace fathom::compile {

// Increase it when kernels or the meaning of a schedule change: files of another version are not used.
inline constexpr int kTuneVersion = 1;

class TuneCache {
 public:
  struct Entry {
    std::string program;           // its name when it was tuned
    std::string content;           // content_of() the graph
    std::vector<int64_t> buckets;  // of its symbols
    int threads = 1;
    Tuned tuned;
  };
  struct File {
    std::filesystem::path path;
    std::optional<Entry> entry;  // none: it is not used, because
    std::string why_not;
  };

  explicit TuneCache(std::filesystem::path folder = default_folder());
  // Throws SystemError where neither XDG_CACHE_HOME nor HOME is set.
  static std::filesystem::path default_folder();

  // The graph in canonical form.
  std::optional<Tuned> find(const Graph& graph, const Plan& plan, std::span<const int64_t> symbols,
                            int threads) const;
  // Whether it is kept; a warning where the folder cannot be written.
  bool store(const Graph& graph, std::span<const int64_t> symbols, int threads, const Tuned& tuned) const;
  std::filesystem::path path_of(const Graph& graph, std::span<const int64_t> symbols, int threads) const;

  std::vector<File> files() const;  // by name
  int64_t clear() const;            // files that are gone now; no others of the folder

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

// What a cache of files knows, else the default.
Scheduler cached_schedules(TuneCache cache);
// What a cache knows; else it tunes, and keeps that: max-autotune.
Scheduler autotuned_schedules(TuneCache cache, TuneOptions options = {});

}  // namespace fathom::compile
