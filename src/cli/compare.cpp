// fathom compare A B: the variants that became faster or slower between two runs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/compare_table.h"
#include "cli/number_check.h"
#include "cli/output_flags.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "lab/compare.h"

namespace fathom::cli {
namespace {

struct CompareFlags {
  std::string a, b, filter;
  double margin_percent = 2;
  Display display       = Display::intervals;
  OutputFlags outputs;
};

const std::map<std::string, Display> kDisplays = {
    {"simple", Display::simple}, {"intervals", Display::intervals}, {"explain", Display::explain}};

lab::RunRecord read_run(const std::string& path) {
  auto run = lab::read_run(path);
  if (!run) throw UsageError(run.error().message);
  return std::move(*run);
}

int compare(const CompareFlags& flags) {
  const auto comparison = lab::compare(read_run(flags.a), read_run(flags.b),
                                       {.margin = flags.margin_percent / 100, .filter = flags.filter});
  if (!comparison) throw UsageError(comparison.error().message);
  const bool stdout_taken = write_outputs(
      flags.outputs, {[&] { return to_json(*comparison); }, [&] { return compare_values(*comparison); },
                      [&] { return compare_table(*comparison, flags.display); }});
  if (!stdout_taken)
    fmt::print("A: {} on {}\nB: {} on {}; above 1, B is better\n\n{}\n{}\n", comparison->label_a,
               comparison->machine_a, comparison->label_b, comparison->machine_b,
               to_text(compare_table(*comparison, flags.display)), compare_summary(*comparison));
  if (comparison->variants.empty())
    fmt::print(stderr, "fathom compare: the two runs share no result{}\n",
               flags.filter.empty() ? "" : " that matches --filter");
  return comparison->regressed() ? kExitRegression : kExitOk;
}

}  // namespace

void add_compare(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<CompareFlags>();
  CLI::App& verb =
      *app.add_subcommand("compare", "Compare two runs by their intervals; exit 1 on a regression");
  verb.add_option("a", flags->a, "The earlier run: a folder or a results.json")->required();
  verb.add_option("b", flags->b, "The later run")->required();
  verb.add_option("-f,--filter", flags->filter, "Only results whose id matches this REGEX");
  verb.add_option("--margin,--threshold-diff", flags->margin_percent,
                  "Equivalence margin in percent: smaller differences count as none")
      ->check(between(0, 100))
      ->capture_default_str();
  verb.add_option("--display", flags->display, "simple, intervals (default) or explain")
      ->transform(CLI::CheckedTransformer(kDisplays).description(""))
      ->type_name("");
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] { exit_code = compare(*flags); });
}

}  // namespace fathom::cli
