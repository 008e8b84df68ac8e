// fathom: measures how fast this machine could go, and shows which technique closes the gap.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/arguments.h"
#include "cli/doctor.h"
#include "cli/help_formatter.h"
#include "cli/run_experiments.h"
#include "cli/table.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "lab/child_main.h"
#include "lab/source_hash.h"

namespace fathom::cli {
namespace {

std::string version() {
  return fmt::format("fathom {} ({}{}, {})", FATHOM_VERSION,
                     lab::build_commit().empty() ? "no commit" : lab::build_commit(),
                     lab::build_dirty() ? "+" : "", lab::build_compiler());
}

std::string name_of(const CLI::App& app) {
  std::string name = "fathom";
  for (const CLI::App* part = &app; !part->get_subcommands().empty(); part = part->get_subcommands().front())
    name += " " + part->get_subcommands().front()->get_name();
  return name;
}

int report_usage_error(const CLI::App& app, const CLI::ParseError& error,
                       const std::vector<std::string>& arguments) {
  if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
  const std::string near = suggestion(app, arguments.empty() ? app.remaining(true) : arguments);
  fmt::print(stderr, "{}: {}{}{}\nSee `{} --help`.\n", name_of(app), error.what(), near.empty() ? "" : "; ",
             near, name_of(app));
  return kExitUsage;
}

int main(int argc, char** argv) {
  program_arguments().assign(argv, argv + argc);
  int exit_code = kExitOk;
  CLI::App app(
      "Benchmark CPU and GPU techniques against measured hardware limits; run and serve gpt-oss models.",
      "fathom");
  app.formatter(std::make_shared<HelpFormatter>(text_columns()));  // of all verbs
  app.set_version_flag("--version", version());
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 ok, 1 regression or missed expectation, 2 wrong output, 3 invalid measurement,\n"
      "4 nothing but skips, 5 usage, 6 crash, time-out or memory.\n"
      "Every flag can be set in the environment: --max-num-seqs by FATHOM_MAX_NUM_SEQS.");
  add_list(app, exit_code);
  add_run(app, exit_code);
  add_verify(app, exit_code);
  add_optimize(app, exit_code);
  add_compare(app, exit_code);
  add_expect(app, exit_code);
  add_report(app, exit_code);
  add_doctor(app, exit_code);
  add_roofline(app, exit_code);
  add_diff(app, exit_code);
  add_diagnose(app, exit_code);
  add_stats(app, exit_code);
  add_techniques(app, exit_code);
  add_history(app, exit_code);
  add_compile(app, exit_code);
  add_model(app, exit_code);
  add_train(app, exit_code);
  add_generate(app, exit_code);
  add_chat(app, exit_code);
  add_bench(app, exit_code);
  add_serve(app, exit_code);
  add_kv_pool(app, exit_code);
  add_launch(app, exit_code);
  add_book(app, exit_code);
  add_environment_variables(app);
  forget_service_links();
  try {
    std::vector<std::string> arguments = with_long_names(argc, argv);
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(std::move(arguments));
  } catch (const CLI::RequiredError& error) {
    // For a misspelt verb CLI11 only says that a verb is missing.
    return report_usage_error(app, error,
                              argc > 1 ? std::vector<std::string>{argv[1]} : std::vector<std::string>());
  } catch (const CLI::ParseError& error) {
    return report_usage_error(app, error, {});
  } catch (const UsageError& error) {
    fmt::print(stderr, "{}: {}\n", name_of(app), error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", name_of(app), error.what());
    return kExitCrash;
  }
  return exit_code;
}

}  // namespace
}  // namespace fathom::cli

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "__experiment")
    return fathom::lab::child_main(argc, argv, fathom::cli::profiler_for);
  return fathom::cli::main(argc, argv);
}
