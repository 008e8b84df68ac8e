// fathom roofline: the variants of a run under the measured ceilings of this machine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/machine_roofs.h"
#include "cli/output_flags.h"
#include "cli/run_folder.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/atomic_file.h"
#include "core/exit_code.h"
#include "lab/quantity.h"

namespace fathom::cli {
namespace {

struct RooflineFlags {
  std::string run, artifacts = "artifacts", svg;
  bool calibrate = false;
  OutputFlags outputs;
};

Table roofs_table(const report::Roofs& roofs) {
  Table table{.columns = {{"ceiling"}, {"rate", true}}, .rows = {}};
  for (const report::MemoryRoof& roof : roofs.memory)
    table.rows.push_back({roof.name, lab::bytes_per_s_text(roof.bytes_per_s)});
  for (const report::ComputeRoof& roof : roofs.compute)
    table.rows.push_back({roof.name, lab::flops_per_s_text(roof.flops_per_s)});
  return table;
}

Table points_table(const std::vector<report::RooflinePoint>& points) {
  Table table{.columns = {{"experiment", false, false},
                          {"at"},
                          {"variant"},
                          {"flops/byte", true},
                          {"rate", true},
                          {"attainable", true},
                          {"share", true}},
              .rows    = {}};
  for (const report::RooflinePoint& point : points)
    table.rows.push_back({point.experiment, point.at, point.variant, lab::digits_text(point.flops_per_byte),
                          lab::flops_per_s_text(point.flops_per_s),
                          point.attainable ? lab::flops_per_s_text(*point.attainable) : "",
                          point.invalid      ? "INVALID"
                          : point.attainable ? lab::share_text(point.flops_per_s / *point.attainable)
                                             : ""});
  return table;
}

int roofline(const RooflineFlags& flags) {
  lab::RunRecord run;  // without points if nothing was run yet
  if (!flags.run.empty() || !run_folders(flags.artifacts).empty())
    run = find_run(flags.run, flags.artifacts).run;
  const report::Roofs roofs =
      measured_roofs(run.machine, flags.calibrate ? machine::Refresh::always : machine::Refresh::if_missing);
  const auto points = report::roofline_points(run, roofs);
  if (!flags.svg.empty())
    write_file_atomically(flags.svg, report::roofline_svg(roofs, points, report::SvgFor::file));
  const auto table = [&] { return points_table(points); };
  if (write_outputs(flags.outputs, {[&] { return report::roofline_json(roofs, points); }, table, table}))
    return kExitOk;
  fmt::print("Ceilings of {} (medians)\n\n{}\n{}", roofs.measured, to_text(roofs_table(roofs)),
             to_text(table()));
  if (points.empty())
    fmt::print("No variant of this run declares both flops and bytes; `fathom run ch09` has some that do.\n");
  if (!flags.svg.empty()) fmt::print(stderr, "drawn: {}\n", flags.svg);
  return kExitOk;
}

}  // namespace

void add_roofline(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<RooflineFlags>();
  CLI::App& verb = *app.add_subcommand("roofline", "Place a run under the measured ceilings of this machine");
  verb.add_option("run", flags->run, "A run: its folder or results.json (default: the newest)");
  add_artifacts_flag(verb, flags->artifacts);
  verb.add_flag("--calibrate", flags->calibrate, "Measure the ceilings anew (half a minute)");
  verb.add_option("--svg", flags->svg, "Draw it to this file");
  add_output_flags(verb, flags->outputs);
  verb.callback([flags, &exit_code] { exit_code = roofline(*flags); });
}

}  // namespace fathom::cli
