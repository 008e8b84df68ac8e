// NCCL's settings for a kind of machine, as data: `fathom launch --nccl-profile`.
//
// NCCL reads its settings from the environment when a process makes its first communicators, and says nothing
// of a variable that it does not know. So a profile is checked here against what NCCL documents and parses,
// before a rank starts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "launch/nearest_nics.h"

namespace fathom::launch {

struct NcclSetting {
  std::string name, value;
  std::string why;  // a sentence

  bool operator==(const NcclSetting& other) const { return name == other.name && value == other.value; }
};

// What every host of the job must have; empty or 0: anything.
struct NcclHardware {
  std::vector<std::string> gpus;  // one of these is in the name of each GPU: "H100", "H200"
  int count = 0;                  // at least so many GPUs
  std::string nic;                // RDMA NICs whose names begin so, of /sys/class/infiniband
};

struct NcclProfile {
  std::string name;
  std::string what;  // "eight B200s of one host"
  std::string source;
  NcclHardware needs;
  std::vector<NcclSetting> settings;
};

// Those that Fathom brings.
const std::vector<NcclProfile>& nccl_profiles();

// One of them by its name; or, where the name has a slash, a file of NCCL's own format: NAME=value lines, #
// begins a comment. All settings are checked.
Result<NcclProfile> find_nccl_profile(const std::string& name);

// An error where NCCL has no such variable, or would refuse or ignore the value.
Status check_nccl_setting(std::string_view name, std::string_view value);

struct HostHardware {
  std::vector<std::string> gpus;  // names
  std::string why_no_gpu;         // where there is none
  std::vector<std::string> nics;  // names of RDMA NICs
  std::vector<PciDevice> gpu_places, nic_places;
};
HostHardware host_hardware();

// Why the profile does not fit, as the lab types what it skips: needs_gpus, needs_feature(rdma).
struct NcclMisfit {
  std::string reason;   // "needs_gpus(8 x B200)"
  std::string because;  // "there are 4: NVIDIA H200"
};
std::optional<NcclMisfit> nccl_misfit(const NcclProfile& profile, const HostHardware& hardware);

// NCCL_NVLS_ENABLE=0, and no NVLS among the algorithms, where these settings switch NVLink multicast on.
std::vector<NcclSetting> without_multicast(std::vector<NcclSetting> settings);

// Lines for a shell: export NAME=value, with the reasons as comments.
std::string to_shell(const NcclProfile& profile);

nlohmann::json to_json(const NcclProfile& profile);
Result<NcclProfile> nccl_profile_from_json(const nlohmann::json& json);

}  // namespace fathom::launch
