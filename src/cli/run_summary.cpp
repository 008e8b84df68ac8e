#include "cli/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "cli/result_table.h"
#include "lab/quantity.h"
#include "lab/registry.h"
#include "machine/ceilings.h"
#include "machine/gpu.h"
#include "machine/gpu_ceilings.h"
#include "machine/isolation.h"
#include "machine/machine_id.h"
#include "machine/topology.h"
#include "report/highlights.h"

namespace fathom::cli {
namespace {

constexpr size_t kGains = 3, kSkips = 2;

std::set<std::string> chapters_of(const lab::RunRecord& run) {
  std::set<std::string> chapters;
  for (const lab::ExperimentRecord& experiment : run.experiments)
    chapters.insert(experiment.id.substr(0, experiment.id.find('/')));
  return chapters;
}

bool has_measured(const lab::RunRecord& run, std::string_view backend) {
  for (const lab::ExperimentRecord& experiment : run.experiments)
    for (const lab::PointRecord& point : experiment.points)
      for (const lab::VariantRecord& variant : point.variants)
        if (experiment.backend == backend && variant.time_ns) return true;
  return false;
}

std::string machine_text() {
  const machine::Topology& host = machine::topology();
  std::string text = fmt::format("{}: {}, {} core{}", machine::machine_id(), host.cpu.model_name, host.cores,
                                 host.cores == 1 ? "" : "s");
  if (machine::isolation().virtual_machine) text += ", a virtual machine";
  const machine::GpuFacts* gpu = machine::gpu();
  return text + "; " + (gpu ? gpu->name : "no GPU");
}

// Medians of the CPU with all its threads, and of the GPU where any of its experiments ran.
std::vector<std::string> ceilings_texts(const lab::RunRecord& run) {
  std::vector<std::string> texts;
  if (has_measured(run, "cpu") && std::filesystem::exists(machine::ceilings_path())) {
    const machine::Ceilings& known = machine::ceilings();
    const std::string threads = known.threads == 1 ? "1 thread" : fmt::format("{} threads", known.threads);
    texts.push_back(
        fmt::format("{} read from DRAM, {} in fp32 ({}), {} a load from DRAM",
                    lab::bytes_per_s_text(machine::median_rate(machine::Level::dram, machine::Traffic::read,
                                                               known.threads, known)),
                    lab::flops_per_s_text(machine::median_flops(DType::fp32, known.threads, known)), threads,
                    lab::time_text(machine::median_load_latency_ns(machine::Level::dram, known))));
  }
  const machine::GpuFacts* gpu = machine::gpu();
  if (gpu && has_measured(run, "cuda") &&
      std::filesystem::exists(
          machine::gpu_ceilings_path({machine::gpu_machine_id(), gpu->uuid, gpu->driver}))) {
    const machine::GpuCeilings& known = machine::gpu_ceilings();
    texts.push_back(
        fmt::format("GPU: {} read from DRAM, {} in bf16 by tensor cores, {} a load from DRAM",
                    lab::bytes_per_s_text(
                        machine::gpu_median_rate(machine::GpuLevel::dram, machine::Traffic::read, known)),
                    lab::flops_per_s_text(machine::gpu_median_flops(DType::bf16, true, known)),
                    lab::time_text(machine::gpu_median_load_latency_ns(machine::GpuLevel::dram, known))));
  }
  return texts;
}

// Cut to `columns`, with an ellipsis where something is missing.
std::string cut(std::string text, int columns) {
  if (display_width(text) <= columns) return text;
  while (display_width(text) >= columns) text.pop_back();
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0x80) != 0) text.pop_back();
  return text + "…";
}

// One line for each reason, the most frequent first, without "skipped: ".
std::vector<std::string> skip_lines(const lab::RunRecord& run) {
  constexpr int kUnbroken           = 1 << 20;
  constexpr std::string_view kBegin = "skipped: ";
  std::vector<std::string> lines;
  std::istringstream text(skips_text(run, kUnbroken));
  for (std::string line; std::getline(text, line);) lines.push_back(line.substr(kBegin.size()));
  return lines;
}

}  // namespace

std::vector<std::string> largest_gains(const lab::RunRecord& run, size_t most) {
  std::vector<std::pair<double, std::string>> gains;  // the best of each experiment
  for (const lab::ExperimentRecord& experiment : run.experiments) {
    std::pair<double, std::string> best;
    for (const lab::PointRecord& point : experiment.points) {
      const lab::VariantRecord* variant = report::best_of(point);
      if (!variant || !variant->ratio || variant->verdict != "FASTER" || (point.aa && point.aa->advisory))
        continue;
      const lab::Ratio& ratio = *variant->ratio;
      if (ratio.median <= best.first) continue;
      best = {ratio.median,
              fmt::format("{} {}  {}{}", lab::ratio_text(ratio.median),
                          lab::ratio_interval_text(ratio.median, ratio.lo, ratio.hi),
                          report::id_at(experiment, point, variant->id),
                          variant->share_of_limit
                              ? ", " + lab::share_text(*variant->share_of_limit) + " of the limit"
                              : "")};
    }
    if (best.first > 0) gains.push_back(std::move(best));
  }
  std::stable_sort(gains.begin(), gains.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(most, gains.size()); ++i) texts.push_back(gains[i].second);
  return texts;
}

std::string run_summary(const lab::RunRecord& run, int columns) {
  if (chapters_of(run).size() < 2) return "";
  std::string text;
  const auto add = [&](std::string_view name, const std::string& value) {
    text += cut(fmt::format("{:<13} {}", name, value), columns) + "\n";
  };
  add("this machine", machine_text());
  std::string_view name = "ceilings";
  for (const std::string& ceilings : ceilings_texts(run)) {
    add(name, ceilings);
    name = "";
  }
  name = "best gains";
  for (const std::string& gain : largest_gains(run, kGains)) {
    add(name, gain);
    name = "";
  }
  const size_t all = lab::experiments().size();
  if (run.experiments.size() < all)
    add("not measured", fmt::format("{} of {} experiments were not in this run; `fathom run` measures all",
                                    all - run.experiments.size(), all));
  const std::vector<std::string> skips = skip_lines(run);
  for (size_t i = 0; i < std::min(kSkips, skips.size()); ++i) add(i == 0 ? "skipped" : "", skips[i]);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace fathom::cli
