// fathom verify: proves every output at the points where the edges are; nothing is timed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/candidates.h"
#include "cli/output_flags.h"
#include "cli/result_table.h"
#include "cli/run_experiments.h"
#include "cli/verbs.h"

namespace fathom::cli {
namespace {

struct VerifyFlags {
  ExperimentFlags experiments;
  OutputFlags outputs;
  CandidateFlags candidates;
};

int verify(const VerifyFlags& flags) {
  lab::Targets targets        = chosen_targets(flags.experiments.selection);
  ExperimentFlags experiments = flags.experiments;
  const Candidates candidates(flags.candidates, targets, experiments.options);
  const lab::RunRecord record =
      run_experiments(experiments, targets, "verify", program_arguments(), [](const lab::RunRecord&) {});
  const int code    = run_exit_code(record);
  const Table table = check_table(record);
  const auto same   = [&] { return table; };
  if (write_outputs(flags.outputs, {[&] { return to_json(record); }, same, same})) return code;
  int right = 0, skipped = 0;
  for (const auto& row : table.rows) {
    right += row[2] == "right";
    skipped += row[2] == "skipped";
  }
  const int others = static_cast<int>(table.rows.size()) - right - skipped;
  fmt::print("{}\n{} right, {} skipped, {} failed\n", check_text(record), right, skipped, others);
  return code;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  auto flags                            = std::make_shared<VerifyFlags>();
  CLI::App& verb                        = *app.add_subcommand("verify", "Check every output, time nothing");
  flags->experiments.options.check_only = true;
  add_experiment_flags(verb, flags->experiments);
  add_candidate_flags(verb, flags->candidates);
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] { exit_code = verify(*flags); });
}

}  // namespace fathom::cli
