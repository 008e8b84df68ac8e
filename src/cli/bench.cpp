// fathom bench: its verbs.
#include <CLI/CLI.hpp>
#include <string>

#include "cli/bench_flags.h"
#include "cli/model_folder.h"
#include "cli/verbs.h"

namespace fathom::cli {

void add_bench(CLI::App& app, int& exit_code) {
  CLI::App& verb = *app.add_subcommand("bench", "How fast a model runs here, and collectives between ranks");
  verb.require_subcommand(1);
  add_bench_collectives(verb, exit_code);
  add_bench_latency(verb, exit_code);
  add_bench_serve(verb, exit_code);
  add_bench_throughput(verb, exit_code, [](const std::string& folder, const engine::EngineConfig& config) {
    return open_engine(folder, config);
  });
}

}  // namespace fathom::cli
