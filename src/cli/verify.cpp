// fathom verify: proves every output at the points where the edges are; nothing is timed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/measuring.h"
#include "cli/output.h"
#include "cli/result_table.h"
#include "cli/verbs.h"

namespace fathom::cli {
namespace {

struct VerifyFlags {
  MeasuringFlags measuring;
  OutputFlags outputs;
};

int verify(const VerifyFlags& flags) {
  const lab::RunRecord record = measure(flags.measuring, selected(flags.measuring.selection), "verify",
                                        program_arguments(), [](const lab::RunRecord&) {});
  const Table table           = check_table(record);
  const auto same             = [&] { return table; };
  if (write_outputs(flags.outputs, {[&] { return to_json(record); }, same, same}))
    return lab::exit_code(record);
  int right = 0, skipped = 0;
  for (const auto& row : table.rows) {
    right += row[2] == "right";
    skipped += row[2] == "skipped";
  }
  const int others = static_cast<int>(table.rows.size()) - right - skipped;
  fmt::print("{}\n{} right, {} skipped, {} failed\n", to_text(table), right, skipped, others);
  return lab::exit_code(record);
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  auto flags                          = std::make_shared<VerifyFlags>();
  CLI::App& verb                      = *app.add_subcommand("verify", "Check every output, time nothing");
  flags->measuring.options.check_only = true;
  add_measuring_flags(verb, flags->measuring);
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] { exit_code = verify(*flags); });
}

}  // namespace fathom::cli
