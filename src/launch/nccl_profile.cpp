#include "launch/nccl_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lab/target.h"
#include "launch/nccl_variables.h"
#include "machine/gpu.h"

namespace fathom::launch {
namespace {

constexpr const char* kNcclGuide =
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html (NCCL 2.28)";

// NCCL chooses well on most machines: a profile is a place to start a comparison from (ch04/nccl_tuning_gpu),
// not a promise.
std::vector<NcclProfile> make_profiles() {
  std::vector<NcclProfile> profiles;
  profiles.push_back(
      {.name     = "hopper",
       .what     = "two to eight H100s or H200s of one host",
       .source   = fmt::format("this project's runs on H100 and H200 (NVLS off: experiments/ch04_distributed/"
                                 "nccl_tuning_gpu/notes.md); variables: {}",
                               kNcclGuide),
       .needs    = {.gpus = {"H100", "H200"}, .count = 2, .nic = ""},
       .settings = {
           {"NCCL_P2P_LEVEL", "NVL", "GPUs reach each other over NVLink, never over PCIe or the CPU."},
           {"NCCL_NVLS_ENABLE", "0",
            "No NVLink multicast (NVLS): the hosts of this project are shared, and forbid it."}}});
  profiles.push_back(
      {.name     = "b200x8",
       .what     = "eight B200s of one host",
       .source   = fmt::format("what experiments/catalog.csv lists for 8 x B200 (distributed-003); not tried "
                                 "by this project; variables: {}",
                               kNcclGuide),
       .needs    = {.gpus = {"B200"}, .count = 8, .nic = ""},
       .settings = {
           {"NCCL_ALGO", "Ring,Tree", "Rings for large messages, trees for small ones."},
           {"NCCL_PROTO", "LL128", "A flag in each line of 128 bytes: 15/16 of the link at little latency."},
           {"NCCL_NET_GDR_LEVEL", "SYS",
            "GPUDirect RDMA at any distance; listed as 5, the old number of SYS."},
           {"NCCL_P2P_LEVEL", "NVL", "GPUs reach each other over NVLink, never over PCIe or the CPU."},
           {"NCCL_NVLS_ENABLE", "1",
            "NVLink multicast is set up. With NCCL_ALGO=Ring,Tree no sum uses it: to try it, add NVLS to the "
            "list."},
           {"NCCL_IB_QPS_PER_CONNECTION", "4",
            "Several paths through a network that routes by queue pair."}}});
  profiles.push_back(
      {.name   = "nvl72",
       .what   = "the trays of a GB200 NVL72 rack, four GPUs each",
       .source = fmt::format(
           "what experiments/catalog.csv lists for NVL72 (distributed-003); not tried by this project; "
           "https://docs.nvidia.com/multi-node-nvlink-systems/multi-node-tuning-guide/nccl.html; variables: "
           "{}",
           kNcclGuide),
       .needs    = {.gpus = {"GB200", "GB300"}, .count = 4, .nic = "mlx5"},
       .settings = {{"NCCL_NVLS_ENABLE", "1", "Sums in the NVLink switches of the rack, by multicast."},
                    {"NCCL_MIN_CTAS", "32", "At least 32 thread blocks move data."},
                    {"NCCL_IB_HCA", "mlx5", "Traffic to other racks by the ConnectX NICs, mlx5_0 and on."}}});
  return profiles;
}

Status check_settings(const NcclProfile& profile, const std::string& where) {
  for (const NcclSetting& setting : profile.settings)
    if (const Status good = check_nccl_setting(setting.name, setting.value); !good)
      return Error{fmt::format("{}: {}", where, good.error().message)};
  return Ok{};
}

Result<NcclProfile> read_profile(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return Error{fmt::format("NCCL profile {} cannot be read; name a file of NAME=value lines", path)};
  NcclProfile profile{.name = path, .what = "any machine", .source = path, .needs = {}, .settings = {}};
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line.erase(std::min(line.find('#'), line.size()));
    const size_t begin = line.find_first_not_of(" \t\r"), end = line.find_last_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    line = line.substr(begin, end - begin + 1);
    if (line.starts_with("export ")) line.erase(0, 7);
    const size_t equals     = line.find('=');
    const std::string where = fmt::format("{}, line {}", path, number);
    if (equals == std::string::npos) return Error{fmt::format("{}: '{}' is no NAME=value", where, line)};
    const NcclSetting setting{line.substr(0, equals), line.substr(equals + 1), ""};
    if (const Status good = check_nccl_setting(setting.name, setting.value); !good)
      return Error{fmt::format("{}: {}", where, good.error().message)};
    profile.settings.push_back(setting);
  }
  if (profile.settings.empty())
    return Error{fmt::format("NCCL profile {} sets nothing; write NAME=value lines", path)};
  return profile;
}

bool one_of(const std::vector<std::string>& models, const std::string& name) {
  return std::any_of(models.begin(), models.end(), [&](const std::string& model) {
    // "B200" is not "GB200", whose host is another.
    const size_t at = name.find(model);
    return at != std::string::npos && (at == 0 || !std::isalnum(static_cast<unsigned char>(name[at - 1])));
  });
}

}  // namespace

const std::vector<NcclProfile>& nccl_profiles() {
  static const std::vector<NcclProfile> profiles = make_profiles();
  return profiles;
}

Result<NcclProfile> find_nccl_profile(const std::string& name) {
  if (name.find('/') != std::string::npos) return read_profile(name);
  std::vector<std::string> names;
  for (const NcclProfile& profile : nccl_profiles()) {
    names.push_back(profile.name);
    if (profile.name != name) continue;
    if (const Status good = check_settings(profile, profile.name); !good) return good.error();
    return profile;
  }
  const std::string near = lab::nearest(name, names);
  return Error{fmt::format("no NCCL profile '{}'{}; there are {}, and a path with a slash names a file", name,
                           near.empty() ? "" : fmt::format(", did you mean '{}'?", near),
                           fmt::join(names, ", "))};
}

HostHardware host_hardware() {
  HostHardware hardware;
  const machine::GpuFacts* first = machine::gpu();
  if (!first) hardware.why_no_gpu = machine::why_no_gpu();
  std::error_code none;
  const auto place = [&](const std::filesystem::path& link) {
    return std::filesystem::canonical(link, none).string();
  };
  for (int index = 0; first && index < first->count; ++index)
    if (const machine::GpuFacts* facts = machine::gpu(DeviceId{index})) {
      hardware.gpus.push_back(facts->name);
      hardware.gpu_places.push_back({facts->name, place("/sys/bus/pci/devices/" + facts->pci_address)});
    }
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", none))
    hardware.nic_places.push_back({entry.path().filename(), place(entry.path() / "device")});
  std::sort(hardware.nic_places.begin(), hardware.nic_places.end(),
            [](const PciDevice& a, const PciDevice& b) { return a.name < b.name; });
  for (const PciDevice& nic : hardware.nic_places) hardware.nics.push_back(nic.name);
  return hardware;
}

std::optional<NcclMisfit> nccl_misfit(const NcclProfile& profile, const HostHardware& hardware) {
  const NcclHardware& needs = profile.needs;
  if (needs.count > 0) {
    const auto fitting       = std::count_if(hardware.gpus.begin(), hardware.gpus.end(),
                                             [&](const std::string& name) { return one_of(needs.gpus, name); });
    const std::string reason = fmt::format("needs_gpus({} x {})", needs.count, fmt::join(needs.gpus, " or "));
    if (hardware.gpus.empty())
      return NcclMisfit{reason, fmt::format("there is no GPU ({})", hardware.why_no_gpu)};
    if (fitting < needs.count)
      return NcclMisfit{reason, fmt::format("there are {} of them among {} GPUs ({})", fitting,
                                            hardware.gpus.size(), hardware.gpus.front())};
  }
  if (!needs.nic.empty() &&
      std::none_of(hardware.nics.begin(), hardware.nics.end(),
                   [&](const std::string& name) { return name.starts_with(needs.nic); }))
    return NcclMisfit{"needs_feature(rdma)",
                      fmt::format("/sys/class/infiniband has no NIC named {}_N", needs.nic)};
  return {};
}

std::vector<NcclSetting> without_multicast(std::vector<NcclSetting> settings) {
  for (NcclSetting& setting : settings) {
    if (setting.name == "NCCL_NVLS_ENABLE") setting.value = "0";
    if (setting.name == "NCCL_ALGO") setting.value = without_nvls(setting.value);
  }
  std::erase_if(settings, [](const NcclSetting& setting) { return setting.value.empty(); });
  return settings;
}

std::string to_shell(const NcclProfile& profile) {
  std::string text =
      fmt::format("# NCCL profile {}: {}\n# source: {}\n", profile.name, profile.what, profile.source);
  const NcclHardware& needs = profile.needs;
  if (needs.count > 0)
    text += fmt::format("# needs: {} x {}{}\n", needs.count, fmt::join(needs.gpus, " or "),
                        needs.nic.empty() ? "" : fmt::format(", NICs named {}_N", needs.nic));
  for (const NcclSetting& setting : profile.settings) {
    if (!setting.why.empty()) text += fmt::format("# {}\n", setting.why);
    text += fmt::format("export {}='{}'\n", setting.name, setting.value);
  }
  return text;
}

nlohmann::json to_json(const NcclProfile& profile) {
  nlohmann::json settings = nlohmann::json::array();
  for (const NcclSetting& setting : profile.settings)
    settings.push_back({{"name", setting.name}, {"value", setting.value}});
  return {
      {"name", profile.name},
      {"what", profile.what},
      {"needs", {{"gpus", profile.needs.gpus}, {"count", profile.needs.count}, {"nic", profile.needs.nic}}},
      {"settings", std::move(settings)}};
}

Result<NcclProfile> nccl_profile_from_json(const nlohmann::json& json) {
  NcclProfile profile;
  profile.name        = json.at("name");
  profile.what        = json.at("what");
  profile.needs.gpus  = json.at("needs").at("gpus").get<std::vector<std::string>>();
  profile.needs.count = json.at("needs").at("count");
  profile.needs.nic   = json.at("needs").at("nic");
  for (const nlohmann::json& setting : json.at("settings"))
    profile.settings.push_back({setting.at("name"), setting.at("value"), ""});
  if (const Status good = check_settings(profile, profile.name); !good) return good.error();
  return profile;
}

}  // namespace fathom::launch
