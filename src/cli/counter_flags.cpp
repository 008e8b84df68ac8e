#include "cli/counter_flags.h"

#include <algorithm>

#include "cli/usage_error.h"
#include "profile/kernel_filter.h"

namespace fathom::cli {

void add_counter_flags(CLI::App& verb, CounterFlags& flags) {
  verb.add_flag(
      "--profile", flags.profile,
      "Look at each variant in an untimed pass: of a GPU one call's timeline, kernels and counters, of a "
      "CPU the functions and threads that its time goes to");
  verb.add_option("--ncu-metric-set", flags.metric_set, "Counters of --profile")
      ->check(CLI::IsMember({"minimal", "roofline", "deep_dive"}))
      ->capture_default_str();
  verb.add_option("--ncu-section,--section", flags.sections,
                  "Counters of --profile by Nsight Compute's sections, in place of a set: WarpStateStats, "
                  "MemoryWorkloadAnalysis, LaunchStats, ... (repeatable; --query-metrics shows all)")
      ->allow_extra_args(false);
  verb.add_option("--ncu-kernel,--kernel-name", flags.kernels,
                  "Kernels of --profile whose name matches this REGEX (regex:... is the same; default: all)");
  verb.add_flag("--query-metrics", flags.query,
                "Only show the counters that --ncu-metric-set or --ncu-section choose, and what they mean");
}

void choose_counters(const CounterFlags& flags, lab::RunOptions& options) {
  if (!flags.profile && (!flags.sections.empty() || !flags.kernels.empty()))
    throw UsageError("--ncu-section and --ncu-kernel choose what --profile looks at: add --profile");
  if (!flags.profile) return;
  options.profile_set      = flags.metric_set;
  options.profile_sections = flags.sections;
  options.profile_kernels  = flags.kernels;
  // Mistakes are found before anything runs.
  (void)counter_choice(options);
  if (const auto filter = profile::KernelFilter::parse(flags.kernels); !filter)
    throw UsageError("--ncu-kernel " + filter.error().message);
}

profile::CounterChoice counter_choice(const lab::RunOptions& options) {
  profile::CounterChoice choice{.set = value_or_usage_error(profile::parse_metric_set(options.profile_set))};
  for (const std::string& section : options.profile_sections)
    choice.sections.push_back(value_or_usage_error(profile::parse_section(section)));
  return choice;
}

Table counter_table(const CounterFlags& flags) {
  const profile::CounterChoice choice =
      counter_choice({.profile_set = flags.metric_set, .profile_sections = flags.sections});
  Table table{.columns = {{"section", false, false}, {"counter"}, {"set"}, {"what it means"}, {"CUPTI"}},
              .rows    = {}};
  for (const profile::CounterMeaning& counter : profile::meanings()) {
    const bool chosen = choice.sections.empty() ? counter.set <= choice.set
                                                : std::find(choice.sections.begin(), choice.sections.end(),
                                                            counter.section) != choice.sections.end();
    if (chosen)
      table.rows.push_back({std::string(counter.section), std::string(counter.name),
                            std::string(to_string(counter.set)), std::string(counter.meaning),
                            std::string(counter.cupti)});
  }
  std::stable_sort(table.rows.begin(), table.rows.end(),
                   [](const auto& a, const auto& b) { return a.front() < b.front(); });
  return table;
}

}  // namespace fathom::cli
