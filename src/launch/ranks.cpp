#include "launch/ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/exit_code.h"

extern char** environ;

namespace fathom::launch {
namespace {

// By name, so that a later setting replaces an earlier one.
using Variables = std::map<std::string, std::string>;

void set_variable(Variables& variables, const std::string& entry) {
  const size_t equals = entry.find('=');
  if (equals != std::string::npos) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
}

Variables host_variables(const NodeJob& job) {
  Variables variables;
  for (char** entry = environ; *entry; ++entry) set_variable(variables, *entry);
  for (const std::string& entry : job.set) set_variable(variables, entry);
  return variables;
}

// A profile with NVLink multicast that is forced on other hardware has it off: NCCL would switch it on for
// all that share the NVLink switches of a host that the profile does not know.
std::vector<NcclSetting> settings_here(const NodeJob& job) {
  if (!job.nccl) return {};
  return nccl_misfit(*job.nccl, host_hardware()) ? without_multicast(job.nccl->settings) : job.nccl->settings;
}

// NICs of each rank's GPU; empty where none are asked for, or why there are none.
struct RankNics {
  std::vector<std::vector<std::string>> names;
  std::optional<NcclMisfit> misfit;
};
RankNics nics_here(const NodeJob& job) {
  if (job.nets_per_gpu == 0) return {};
  const HostHardware hardware = host_hardware();
  const std::string gpus      = fmt::format("needs_gpus({})", job.ranks.count);
  if (hardware.gpus.empty())
    return {{}, NcclMisfit{gpus, fmt::format("there is no GPU ({})", hardware.why_no_gpu)}};
  if (hardware.gpus.size() < static_cast<size_t>(job.ranks.count))
    return {{}, NcclMisfit{gpus, fmt::format("there are {} GPUs", hardware.gpus.size())}};
  auto nics = nearest_nics(hardware.gpu_places, hardware.nic_places, job.nets_per_gpu);
  if (!nics) return {{}, NcclMisfit{"needs_feature(rdma)", nics.error().message}};
  return {std::move(*nics), {}};
}

}  // namespace

nlohmann::json to_json(const NodeJob& job) {
  nlohmann::json json = {{"node", job.ranks.node},
                         {"host", job.ranks.host},
                         {"first", job.ranks.first},
                         {"count", job.ranks.count},
                         {"nodes", job.nodes},
                         {"world", job.world},
                         {"master_address", job.master_address},
                         {"master_port", job.master_port},
                         {"directory", job.directory},
                         {"set", job.set},
                         {"command", job.command},
                         {"force_nccl", job.force_nccl},
                         {"nets_per_gpu", job.nets_per_gpu}};
  if (job.nccl) json["nccl"] = to_json(*job.nccl);
  return json;
}

Result<NodeJob> node_job(const nlohmann::json& json) {
  try {
    NodeJob job;
    job.ranks          = {json.at("node"), json.at("host"), json.at("first"), json.at("count")};
    job.nodes          = json.at("nodes");
    job.world          = json.at("world");
    job.master_address = json.at("master_address");
    job.master_port    = json.at("master_port");
    job.directory      = json.at("directory");
    job.set            = json.at("set").get<std::vector<std::string>>();
    job.command        = json.at("command").get<std::vector<std::string>>();
    job.force_nccl     = json.at("force_nccl");
    job.nets_per_gpu   = json.at("nets_per_gpu");
    if (json.contains("nccl")) {
      auto profile = nccl_profile_from_json(json["nccl"]);
      if (!profile) return profile.error();
      job.nccl = std::move(*profile);
    }
    return job;
  } catch (const nlohmann::json::exception& error) {
    return Error{fmt::format("the launcher sent an order that cannot be read: {}", error.what())};
  }
}

std::optional<Refusal> why_not(const NodeJob& job) {
  std::error_code unknown;
  if (!job.directory.empty() && !std::filesystem::is_directory(job.directory, unknown))
    return Refusal{kExitUsage,
                   fmt::format("there is no folder {} on {}; make it there, or name one that every host "
                               "has with --wdir",
                               job.directory, job.ranks.host)};
  if (job.nccl && !job.force_nccl)
    if (const auto misfit = nccl_misfit(*job.nccl, host_hardware()))
      return Refusal{
          kExitNothingRan,
          fmt::format("{}: NCCL profile {} is for {}, and on {} {}; --force-nccl-profile sets it all the "
                      "same",
                      misfit->reason, job.nccl->name, job.nccl->what, job.ranks.host, misfit->because)};
  if (const auto misfit = nics_here(job).misfit)
    return Refusal{kExitNothingRan,
                   fmt::format("{}: --nets-per-gpu {} cannot be had on {}: {}", misfit->reason,
                               job.nets_per_gpu, job.ranks.host, misfit->because)};
  return {};
}

std::vector<std::string> rank_environment(const NodeJob& job, int rank) {
  Variables variables = host_variables(job);
  if (const auto nics = nics_here(job).names; !nics.empty())  // "=": these names, not all that begin so
    variables.try_emplace(
        "NCCL_IB_HCA", fmt::format("={}", fmt::join(nics[static_cast<size_t>(rank - job.ranks.first)], ",")));
  for (const NcclSetting& setting : settings_here(job)) variables.try_emplace(setting.name, setting.value);
  variables["RANK"]             = std::to_string(rank);
  variables["LOCAL_RANK"]       = std::to_string(rank - job.ranks.first);
  variables["WORLD_SIZE"]       = std::to_string(job.world);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(job.ranks.count);
  variables["GROUP_RANK"]       = std::to_string(job.ranks.node);
  variables["MASTER_ADDR"]      = job.master_address;
  variables["MASTER_PORT"]      = std::to_string(job.master_port);
  variables["FATHOM_NODE_NAME"] = job.ranks.host;
  std::vector<std::string> environment;
  for (const auto& [name, value] : variables) environment.push_back(fmt::format("{}={}", name, value));
  return environment;
}

std::string nccl_note(const NodeJob& job) {
  if (!job.nccl && job.nets_per_gpu == 0) return "";
  const Variables before = host_variables(job);
  std::vector<std::string> set, kept;
  const auto tell = [&](const std::string& name, const std::string& value) {
    const auto own = before.find(name);
    if (own == before.end())
      set.push_back(fmt::format("{}={}", name, value));
    else if (own->second != value)
      kept.push_back(fmt::format("{}={}", name, own->second));
  };
  for (const auto& nics : nics_here(job).names) tell("NCCL_IB_HCA", fmt::format("={}", fmt::join(nics, ",")));
  const std::vector<NcclSetting> settings = settings_here(job);
  for (const NcclSetting& setting : settings)
    if (setting.name != "NCCL_IB_HCA" || job.nets_per_gpu == 0) tell(setting.name, setting.value);
  std::string note = fmt::format("{} sets {}", job.nccl ? "NCCL profile " + job.nccl->name : "--nets-per-gpu",
                                 set.empty() ? "nothing" : fmt::format("{}", fmt::join(set, ", ")));
  if (!kept.empty()) note += fmt::format("; the environment's {} stays", fmt::join(kept, ", "));
  if (job.nccl && settings != job.nccl->settings)
    note += "; NVLink multicast is off, because this is not the hardware that the profile is for";
  return note;
}

std::vector<LaunchedProcess> start_ranks(const NodeJob& job) {
  std::vector<LaunchedProcess> started;
  for (int rank = job.ranks.first; rank < job.ranks.first + job.ranks.count; ++rank) {
    ProcessStart start{.path        = "/proc/self/exe",
                       .arguments   = {"fathom"},
                       .environment = rank_environment(job, rank),
                       .directory   = job.directory,
                       .with_input  = false};
    start.arguments.insert(start.arguments.end(), job.command.begin(), job.command.end());
    started.push_back(start_process(std::move(start)));
  }
  return started;
}

std::string this_program() {
  std::error_code unknown;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", unknown);
  return unknown ? "fathom" : path.string();
}

}  // namespace fathom::launch
