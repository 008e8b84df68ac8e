// --json[=FILE], --csv[=FILE], --md[=FILE]: data goes to the file, or to standard output when none is named.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/table.h"

namespace fathom::cli {

struct OutputFlags {
  std::string json, csv, md;
};

void add_output_flags(CLI::App& verb, OutputFlags& flags);

struct Outputs {
  std::function<nlohmann::json()> json;
  std::function<Table()> csv, md;
};
// Writes the requested formats. Returns false if standard output is still free for the caller's text.
bool write_outputs(const OutputFlags& flags, const Outputs& outputs);

}  // namespace fathom::cli
