#include "cli/kernel_prompt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "cli/usage_error.h"
#include "core/read_file.h"
#include "lab/quantity.h"
#include "machine/ceilings.h"
#include "machine/topology.h"

namespace fathom::cli {
namespace {

namespace fs = std::filesystem;

std::string axes_text(const std::vector<lab::Axis>& axes) {
  std::string text;
  for (const lab::Axis& axis : axes) {
    std::vector<std::string> values;
    for (const lab::Value& value : axis.values) values.push_back(lab::to_string(value));
    text += fmt::format("{}{} = {}", text.empty() ? "" : "; ", axis.name, fmt::join(values, ", "));
  }
  return text;
}

std::string fenced(std::string_view name, std::string_view text) {
  return fmt::format("{}:\n```cpp\n{}{}```\n\n", name, text, text.ends_with('\n') ? "" : "\n");
}

}  // namespace

std::string default_instructions() {
  return R"(You write a kernel that is verified and timed beside others. Make it as fast as this machine allows.

Reply with one C++20 file in one ```cpp block:
- It includes "lab/candidate.h" and the header of the problem, which is below.
- In the namespace of the problem it defines one function, `void NAME(const PROBLEM& p, Context& context)`, and
  ends with `FATHOM_CANDIDATE(NAME)` in that namespace. Helpers are in an anonymous namespace.
- It may use the standard library, <immintrin.h>, and what the headers shown define; functions that they only
  declare are not there. It is compiled for AVX2, FMA and F16C: a function that uses more of the instruction sets
  named below needs __attribute__((target("avx512f"))).
- With several threads it divides its work by `context.pool.parallel_for(n, grain, f)`, which calls
  f(begin, end) on pieces of [0, n). It starts no threads, files or processes of its own.
- It does the whole work in each call and keeps nothing between calls: inputs change, outputs are poisoned, and
  whole outputs are compared with a reference. A candidate that only looks fast is caught.
- It is right at every size that is proved, also 0 and 1.
Before the block, say in two sentences what limits the best variant so far and what you change.
)";
}

std::string experiment_text(const lab::ExperimentInfo& experiment, const std::vector<lab::Axis>& timed) {
  std::string text = fmt::format("{}\n{}\nLimit: {}. Timed at {}.", experiment.id, experiment.question,
                                 to_string(experiment.limit), axes_text(timed));
  if (!experiment.check_at.empty())
    text += fmt::format(" Proved at every combination of {}.", axes_text(experiment.check_at));
  return text + fmt::format(" Data before a call: {}.\n", to_string(experiment.cache));
}

std::string machine_text(int threads) {
  const machine::Topology& machine = machine::topology();
  std::vector<std::string> sets;
  for (const char* flag :
       {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16", "avx512_vnni", "amx_tile"})
    if (std::ranges::count(machine.cpu.flags, flag)) sets.push_back(flag);
  std::string text = fmt::format(
      "{}, {} threads; a candidate has {}. Instruction sets: {}.", machine.cpu.model_name, machine.threads,
      threads == lab::kAllThreads ? "all" : fmt::format("{}", threads), fmt::join(sets, ", "));
  for (const int level : {1, 2, 3})
    if (const machine::CpuCache* cache = machine::data_cache(machine, level))
      text += fmt::format(" L{}: {} KiB.", level, cache->bytes / 1024);
  using machine::Level, machine::Traffic;
  const int used = threads == lab::kAllThreads ? machine.threads : threads;
  return text + fmt::format(" Measured ceilings of these threads: {} from DRAM, {} in fp32.\n",
                            lab::bytes_per_s_text(machine::best_rate(Level::dram, Traffic::read, used)),
                            lab::flops_per_s_text(machine::peak_flops(DType::fp32, used)));
}

std::vector<std::pair<std::string, std::string>> files_for(const std::string& root,
                                                           const lab::ExperimentInfo& experiment,
                                                           const std::vector<std::string>& ids) {
  const fs::path folder = fs::path(root) / experiment.folder;
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".h") paths.push_back(entry.path());
  std::ranges::sort(paths);
  for (const std::string& id : ids)
    if (fs::exists(folder / (id + ".cpp"))) paths.push_back(folder / (id + ".cpp"));
  std::vector<std::pair<std::string, std::string>> files;
  for (const fs::path& path : paths)
    files.emplace_back(path.filename().string(), value_or_usage_error(read_file(path)));
  return files;
}

std::string prompt_text(const KernelTask& task, const Tried* best, const Tried* last) {
  std::string text = fmt::format("{}\n# The experiment\n{}\n# The machine\n{}\n# Sources\n",
                                 task.instructions, task.experiment, task.machine);
  for (const auto& [name, source] : task.files) text += fenced(name, source);
  text += "# Its variants, measured here\n" + task.measured + "\n";
  if (best) text += "# The best candidate so far\n" + best->outcome + "\n" + fenced("Its file", best->source);
  if (last && last != best) {
    text += "# The last candidate\n" + last->outcome + "\n";
    if (!last->source.empty()) text += fenced("Its file", last->source);
  }
  return text;
}

std::optional<std::string> code_of(std::string_view reply) {
  std::optional<std::string> code;
  for (size_t fence = 0; (fence = reply.find("```", fence)) != std::string_view::npos;) {
    const size_t begin = reply.find('\n', fence);
    if (begin == std::string_view::npos) break;
    const size_t end = reply.find("```", begin);
    const std::string_view body =
        reply.substr(begin + 1, end == std::string_view::npos ? end : end - begin - 1);
    if (body.find("FATHOM_CANDIDATE") != std::string_view::npos) code = std::string(body);
    if (end == std::string_view::npos) break;
    fence = end + 3;
  }
  return code;
}

}  // namespace fathom::cli
