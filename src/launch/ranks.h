// The ranks of one host: what they are told, and their start.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "launch/hosts.h"
#include "launch/launched_process.h"
#include "launch/nccl_profile.h"

namespace fathom::launch {

struct NodeJob {
  NodeRanks ranks;
  int nodes = 1, world = 1;
  std::string master_address = "127.0.0.1";
  int master_port            = 0;
  std::string directory;             // to work in; empty: where the launcher was started
  std::vector<std::string> set;      // "NAME=value", before what the host's own environment says
  std::vector<std::string> command;  // a verb and its arguments
  std::optional<NcclProfile> nccl;
  bool force_nccl  = false;  // on hardware that it is not for, too
  int nets_per_gpu = 0;      // NICs for the GPU of each rank, LOCAL_RANK; 0: NCCL's choice
};

nlohmann::json to_json(const NodeJob& job);
Result<NodeJob> node_job(const nlohmann::json& json);

struct Refusal {
  int exit_code = 0;
  std::string text;  // a sentence
};
// Why this host cannot start the job; nothing where it can.
std::optional<Refusal> why_not(const NodeJob& job);

// The environment of a rank: the host's, with what the job sets, RANK, LOCAL_RANK, WORLD_SIZE,
// LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR and MASTER_PORT as torchrun sets them, and FATHOM_NODE_NAME, the
// host's name.
std::vector<std::string> rank_environment(const NodeJob& job, int rank);

// What the job sets for NCCL on this host and what it leaves, in sentences; empty where it sets nothing.
std::string nccl_note(const NodeJob& job);

// One process for each of the host's ranks. Throws SystemError.
std::vector<LaunchedProcess> start_ranks(const NodeJob& job);

// Path of this program.
std::string this_program();

}  // namespace fathom::launch
