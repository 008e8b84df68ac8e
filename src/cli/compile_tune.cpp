#include "cli/compile_tune.h"

#include <fmt/format.h>

#include <string>

#include "compile/tune_cache.h"
#include "core/cpus.h"
#include "core/thread_pool.h"

namespace fathom::cli {
namespace {

std::string schedule_text(const compile::Graph& graph, const compile::Group& group,
                          const compile::Schedule& schedule, int threads) {
  const auto of = [](bool chooses, int64_t value) {
    return chooses ? fmt::format("{:>8}", value) : fmt::format("{:>8}", "-");
  };
  return fmt::format("{}{}{:>8}", of(compile::chooses_block(group), schedule.block),
                     of(compile::chooses_chunk(graph, group), schedule.chunk),
                     schedule.threads ? threads : 1);
}

std::string gain(const compile::Tuned& tuned) {
  if (tuned.best_ns == 0) return "the default is the fastest of each launch";
  const std::string times =
      fmt::format("{:.1f} us, the default {:.1f} us", tuned.best_ns / 1e3, tuned.default_ns / 1e3);
  return tuned.faster ? fmt::format("{}: {:.2f}x", times, tuned.default_ns / tuned.best_ns)
                      : fmt::format("{}: not faster beyond noise, so the default stays", times);
}

}  // namespace

void tune_program(const compile::Graph& graph, const std::vector<int64_t>& symbols, int threads,
                  double seconds) {
  const compile::TuneCache cache(compile::TuneCache::default_folder());
  ThreadPool pool({.threads = threads > 0 ? threads : host_threads(), .cpus = allowed_cpus()});
  const compile::Plan plan   = compile::fuse(graph);
  const compile::Tuned tuned = compile::tune(graph, plan, symbols, pool, {.seconds = seconds});
  const bool kept            = cache.store(graph, symbols, pool.threads(), tuned);

  std::string at;
  for (size_t s = 0; s < symbols.size(); ++s)
    at += fmt::format("{}{} = {}", s ? ", " : " at ", graph.symbols[s].name, symbols[s]);
  fmt::print("{}{}, {} thread{}: tried {} of {} candidates\n", graph.name, at, pool.threads(),
             pool.threads() == 1 ? "" : "s", tuned.tried, tuned.of);
  fmt::print("{}\n\n  launch   block   chunk threads\n", gain(tuned));
  for (size_t g = 0; g < plan.groups.size(); ++g)
    fmt::print("  {:>6}{}\n", g + 1,
               schedule_text(graph, plan.groups[g], tuned.schedules[g], pool.threads()));
  if (kept) fmt::print("\nkept in {}\n", cache.path_of(graph, symbols, pool.threads()).string());
}

void show_tune_cache() {
  const compile::TuneCache cache(compile::TuneCache::default_folder());
  const auto files = cache.files();
  fmt::print("{}: {} tuned program{}\n", cache.folder().string(), files.size(), files.size() == 1 ? "" : "s");
  for (const compile::TuneCache::File& file : files) {
    fmt::print("  {}\n", file.path.filename().string());
    if (!file.entry) {
      fmt::print("    not used: {}\n", file.why_not);
      continue;
    }
    std::string buckets;
    for (const int64_t bucket : file.entry->buckets) buckets += fmt::format(", extents up to {}", bucket);
    fmt::print("    {}{}, {} thread{}: {}\n", file.entry->program, buckets, file.entry->threads,
               file.entry->threads == 1 ? "" : "s", gain(file.entry->tuned));
  }
}

void clear_tune_cache() {
  const compile::TuneCache cache(compile::TuneCache::default_folder());
  const int64_t gone = cache.clear();
  fmt::print("{}: deleted {} file{}\n", cache.folder().string(), gone, gone == 1 ? "" : "s");
}

}  // namespace fathom::cli
