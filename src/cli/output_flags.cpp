#include "cli/output_flags.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/usage_error.h"
#include "core/atomic_file.h"
#include "lab/json_text.h"
#include "lab/record.h"

namespace fathom::cli {
namespace {

constexpr const char* kNoFile = "true";  // what CLI11 stores for a flag without a value

}  // namespace

void add_output_flags(CLI::App& verb, OutputFlags& flags) {
  verb.add_flag("--json", flags.json, "Write JSON to standard output, or to FILE with --json=FILE");
  verb.add_flag("--csv", flags.csv, "The same as CSV");
  verb.add_flag("--md,--markdown", flags.md, "The same as a Markdown table");
}

bool write_outputs(const OutputFlags& flags, const Outputs& outputs) {
  bool stdout_taken = false;
  const auto write  = [&](const std::string& flag, const auto& text) {
    if (flag.empty()) return;
    if (flag != kNoFile && flag != "-") return write_file_atomically(flag, text());
    if (stdout_taken)
      throw UsageError("two formats cannot share standard output; give one a file, e.g. --csv=results.csv");
    stdout_taken = true;
    fmt::print("{}", text());
  };
  write(flags.json, [&] { return lab::json_text(outputs.json()); });
  write(flags.csv, [&] { return to_csv(outputs.csv()); });
  write(flags.md, [&] { return to_markdown(outputs.md()); });
  return stdout_taken;
}

}  // namespace fathom::cli
