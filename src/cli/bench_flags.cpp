#include "cli/bench_flags.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "cli/ctrl_c.h"
#include "cli/number_check.h"
#include "cli/usage_error.h"

namespace fathom::cli {

void add_workload_flags(CLI::App& verb, WorkloadFlags& flags) {
  const auto tokens = whole_at_least(0, 1 << 24);
  const auto some   = whole_at_least(1, 1 << 24);
  const auto add    = [&](const char* name, auto& value, const char* text, const CLI::Validator& allowed) {
    verb.add_option(name, value, text)->check(allowed)->capture_default_str();
  };
  add("--dataset-name", flags.dataset, "What prompts are",
      CLI::IsMember({"random", "prefix_repetition", "trace", "custom", "sharegpt"}));
  verb.add_option("--dataset-path", flags.path, "JSONL file of trace, custom and sharegpt");
  verb.add_option("--num-prompts", flags.num_prompts, "Requests (default: 1000, or as many as the file has)")
      ->check(some);
  verb.add_option("--input-len", flags.input_len, "Tokens of a prompt, whatever the dataset")->check(some);
  verb.add_option("--output-len", flags.output_len, "Output tokens of a request, whatever the dataset")
      ->check(some);
  add("--random-input-len", flags.random_input_len, "random: tokens of a prompt", some);
  add("--random-output-len", flags.random_output_len, "random: output tokens", some);
  add("--random-range-ratio", flags.random_range_ratio, "random: lengths lie in len (1 - r) to len (1 + r)",
      between(0, 0.999999));
  add("--random-prefix-len", flags.random_prefix_len, "random: tokens that all prompts begin with", tokens);
  add("--prefix-repetition-prefix-len", flags.prefix_len, "prefix_repetition: tokens of a shared prefix",
      tokens);
  add("--prefix-repetition-suffix-len", flags.suffix_len, "prefix_repetition: a prompt's own tokens", some);
  add("--prefix-repetition-num-prefixes", flags.num_prefixes, "prefix_repetition: different prefixes", some);
  add("--prefix-repetition-output-len", flags.prefix_output_len, "prefix_repetition: output tokens", some);
  add("--custom-output-len,--sharegpt-output-len", flags.custom_output_len,
      "custom, sharegpt: output tokens where the line does not say", some);
  add("--random-vocab", flags.random_vocab, "Random token ids lie from 300 to below this",
      whole_at_least(301, 1 << 24));
  verb.add_option("--seed", flags.seed, "Seed of prompts and arrivals")->capture_default_str();
}

load::WorkloadSpec workload_spec(const WorkloadFlags& flags) {
  using Dataset      = load::WorkloadSpec::Dataset;
  const bool repeats = flags.dataset == "prefix_repetition";
  load::WorkloadSpec spec{.input_len  = repeats ? flags.suffix_len : flags.random_input_len,
                          .output_len = repeats ? flags.prefix_output_len : flags.random_output_len,
                          .path       = flags.path};
  spec.end_id = static_cast<model::TokenId>(flags.random_vocab);
  if (flags.dataset == "trace") {
    spec.dataset = Dataset::trace;
  } else if (flags.dataset == "custom" || flags.dataset == "sharegpt") {
    spec.dataset    = Dataset::custom;
    spec.output_len = flags.custom_output_len;
  } else if (repeats) {
    spec.prefix_len   = flags.prefix_len;
    spec.num_prefixes = flags.num_prefixes;
  } else {
    spec.prefix_len  = flags.random_prefix_len;
    spec.range_ratio = flags.random_range_ratio;
  }
  if (flags.input_len > 0) spec.input_len = flags.input_len;
  if (flags.output_len > 0) spec.output_len = flags.output_len;
  const bool file = spec.dataset != Dataset::random;
  if (file && flags.path.empty())
    throw UsageError("--dataset-name " + flags.dataset + " reads a file: name it with --dataset-path");
  if (!file && !flags.path.empty())
    throw UsageError("--dataset-path goes with --dataset-name trace, custom or sharegpt, not with " +
                     flags.dataset);
  return spec;
}

int64_t workload_count(const WorkloadFlags& flags) {
  if (flags.num_prompts > 0) return flags.num_prompts;
  return flags.path.empty() ? 1000 : 0;
}

load::RunOptions load_options(ProgressDisplay& display, std::string what, int64_t max_concurrency) {
  return {.max_concurrency = max_concurrency,
          .progress =
              [&display, what = std::move(what)](const load::Progress& now) {
                const int64_t ended = now.completed + now.failed;
                display.show({.experiment = what,
                              .phase      = fmt::format("{} sent, {} failed", now.sent, now.failed),
                              .done       = static_cast<int>(ended),
                              .total      = static_cast<int>(now.total)});
              },
          .stop = [] { return CtrlC::pressed(); }};
}

std::string local_timestamp() { return fmt::format("{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr))); }

}  // namespace fathom::cli
