// fathom list: every experiment with its question, variants and axes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/experiment_list.h"
#include "cli/output_flags.h"
#include "cli/target_flags.h"
#include "cli/verbs.h"
#include "core/exit_code.h"

namespace fathom::cli {
namespace {

struct ListFlags {
  TargetFlags selection;
  OutputFlags outputs;
};

}  // namespace

void add_list(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<ListFlags>();
  CLI::App& verb = *app.add_subcommand("list", "Show experiments, their questions, variants and axes");
  add_target_flags(verb, flags->selection);
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] {
    const lab::Targets targets = chosen_targets(flags->selection);
    const auto table           = [&] { return experiment_list_table(targets); };
    if (!write_outputs(flags->outputs, {[&] { return experiment_list_json(targets); }, table, table}))
      fmt::print("{}", experiment_list_text(targets));
    exit_code = kExitOk;
  });
}

}  // namespace fathom::cli
