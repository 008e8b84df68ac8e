// fathom list: every experiment with its question, variants and axes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/listing.h"
#include "cli/output.h"
#include "cli/selection.h"
#include "cli/verbs.h"

namespace fathom::cli {
namespace {

struct ListFlags {
  SelectionFlags selection;
  OutputFlags outputs;
};

}  // namespace

void add_list(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<ListFlags>();
  CLI::App& verb = *app.add_subcommand("list", "Show experiments, their questions, variants and axes");
  add_selection_flags(verb, flags->selection);
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] {
    const lab::Targets targets = selected(flags->selection);
    const auto table           = [&] { return listing_table(targets); };
    if (!write_outputs(flags->outputs, {[&] { return listing_json(targets); }, table, table}))
      fmt::print("{}", listing_text(targets));
    exit_code = 0;
  });
}

}  // namespace fathom::cli
