// fathom compile: what the tensor compiler makes of a program, and why.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cli/compile_tune.h"
#include "cli/table.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "compile/canonical.h"
#include "compile/explain.h"
#include "compile/gradient.h"
#include "compile/programs.h"
#include "compile/text.h"
#include "core/exit_code.h"
#include "core/expect.h"
#include "core/read_file.h"
#include "lab/target.h"

namespace fathom::cli {
namespace {

struct CompileFlags {
  std::string target;
  std::vector<std::string> at;
  std::string stage = "canonical";
  std::string gradient;  // an output; empty: the program as it is
  int threads    = 0;    // all
  double seconds = 2;
  bool clear     = false;
};

std::string names_of_programs() {
  std::string names;
  for (const compile::NamedProgram& program : compile::programs())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", program.name);
  return names;
}

compile::Graph graph_of(const std::string& target) {
  if (target.ends_with(".ir"))
    return value_or_usage_error(compile::parse(value_or_usage_error(read_file(target)), target));
  std::vector<std::string> names;
  for (const compile::NamedProgram& program : compile::programs()) {
    if (program.name == target) return program.graph();
    names.emplace_back(program.name);
  }
  const std::string near = lab::nearest(target, names);
  throw UsageError(fmt::format("'{}' is no program{}; there are {}, and files that end in .ir", target,
                               near.empty() ? "" : "; did you mean '" + near + "'?", names_of_programs()));
}

// The program, or the joint graph of the gradients of its output with respect to all inputs.
compile::Graph graph_of(const CompileFlags& flags) {
  const compile::Graph graph = graph_of(flags.target);
  if (flags.gradient.empty()) return graph;
  std::vector<std::string> inputs;
  for (const int id : graph.inputs()) inputs.push_back(graph[id].name);
  try {
    return compile::gradient(graph, flags.gradient, inputs);
  } catch (const ContractError& error) {
    throw UsageError(fmt::format("--gradient {}: {}", flags.gradient, error.what()));
  }
}

// "T=64" for each; symbols that are not named have a value near 1024.
std::vector<int64_t> symbols_of(const compile::Graph& graph, const std::vector<std::string>& at) {
  std::vector<int64_t> values = graph.typical_symbols();
  for (const std::string& text : at) {
    const size_t equals    = std::min(text.find('='), text.size());
    const std::string name = text.substr(0, equals);
    const auto symbol      = std::find_if(graph.symbols.begin(), graph.symbols.end(),
                                          [&](const compile::Symbol& s) { return s.name == name; });
    if (symbol == graph.symbols.end())
      throw UsageError(fmt::format("--at {}: {} has no symbol '{}'; `fathom compile show` lists them", text,
                                   graph.name, name));
    int64_t value         = -1;
    const char* const end = text.data() + text.size();
    const auto read       = std::from_chars(text.data() + std::min(equals + 1, text.size()), end, value);
    if (read.ec != std::errc{} || read.ptr != end || !symbol->admits(value))
      throw UsageError(fmt::format("--at {}: {} lies in {}..{} and is a multiple of {}", text, name,
                                   symbol->min, symbol->max, symbol->multiple));
    values[static_cast<size_t>(symbol - graph.symbols.begin())] = value;
  }
  return values;
}

void explain(const CompileFlags& flags) {
  const compile::Graph graph = compile::canonical(graph_of(flags));
  std::istringstream text(compile::explain(graph, compile::fuse(graph), symbols_of(graph, flags.at)));
  for (std::string line; std::getline(text, line);) {
    // The last column is broken into lines.
    const size_t column = display_width(line) > text_columns() ? line.rfind("  ") : line.npos;
    if (column == line.npos)
      fmt::print("{}\n", line);
    else
      fmt::print("{}", wrapped(line.substr(column + 2), text_columns(), line.substr(0, column + 2)));
  }
}

void show(const CompileFlags& flags) {
  compile::Graph graph = graph_of(flags);
  if (flags.stage == "canonical") graph = compile::canonical(graph);
  fmt::print("{}", compile::print(graph));
}

void tune(const CompileFlags& flags) {
  const compile::Graph graph = compile::canonical(graph_of(flags));
  tune_program(graph, symbols_of(graph, flags.at), flags.threads, flags.seconds);
}

}  // namespace

void add_compile(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<CompileFlags>();
  CLI::App& verb =
      *app.add_subcommand("compile", "Show what the tensor compiler makes of a program, and why");
  verb.require_subcommand(1);
  const auto add = [&](const char* name, const char* what, void (*run)(const CompileFlags&)) -> CLI::App& {
    CLI::App& action = *verb.add_subcommand(name, what);
    action
        .add_option("target", flags->target, fmt::format("A program ({}) or a file.ir", names_of_programs()))
        ->required();
    action.add_option("--gradient", flags->gradient,
                      "The joint graph: forward, and the gradient of this output (y) by every input");
    action.callback([flags, run, &exit_code] {
      run(*flags);
      exit_code = kExitOk;
    });
    return action;
  };
  add("explain", "Launches with their bytes before and after fusion, and what was not fused and why", explain)
      .add_option("--at", flags->at, "Values of symbols for the bytes, e.g. --at T=64; near 1024 otherwise");
  add("show", "The program as text, which a file.ir may hold", show)
      .add_option("--stage", flags->stage, "captured: as it was written down; canonical: what is fused")
      ->check(CLI::IsMember({"captured", "canonical"}));

  CLI::App& tuning = add("tune", "Time how its launches may run, and keep the fastest for later runs", tune);
  tuning.add_option("--at", flags->at, "Values of symbols, e.g. --at T=64; near 1024 otherwise");
  tuning.add_option("--threads", flags->threads, "Threads to tune for; all by default")
      ->check(CLI::Range(1, 4096));
  tuning.add_option("--seconds", flags->seconds, "How long to search")->check(CLI::Range(0.0, 3600.0));

  CLI::App& cache = *verb.add_subcommand("cache", "What tune has kept on this machine");
  cache.add_flag("--clear", flags->clear, "Delete it");
  cache.callback([flags, &exit_code] {
    flags->clear ? clear_tune_cache() : show_tune_cache();
    exit_code = kExitOk;
  });
}

}  // namespace fathom::cli
