// fathom launch: a command as several ranks, each a process, of this host and of others.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/number_check.h"
#include "cli/training_plan.h"
#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "launch/follower.h"
#include "launch/hosts.h"
#include "launch/nccl_profile.h"
#include "launch/remote.h"
#include "launch/session.h"

extern char** environ;

namespace fathom::cli {

using namespace launch;

namespace {

constexpr int kMostLaunched  = 4096;   // what a group may have
constexpr int kTorchrunsPort = 29500;  // where all hosts must know the port beforehand

struct LaunchFlags {
  int ranks = 0, node_rank = -1, master_port = 0, nets_per_gpu = 0;  // 0, -1: not given
  std::vector<std::string> hosts, set, command;
  std::string hostfile, master_address, ssh = "ssh", directory, nccl_profile;
  bool force_nccl = false, print = false, follow = false;
};

// Variables that go to other hosts without being asked for: how Fathom and the libraries of its ranks are
// set.
constexpr std::string_view kPassedOn[] = {"FATHOM_", "NCCL_", "CUDA_", "OMP_"};

// -x NAME takes this host's value, -x NAME=value sets one. What is passed on anyway comes first.
std::vector<std::string> variables_to_set(const LaunchFlags& flags) {
  std::vector<std::string> set;
  for (char** entry = environ; *entry; ++entry)
    if (std::any_of(std::begin(kPassedOn), std::end(kPassedOn),
                    [&](std::string_view begin) { return std::string_view(*entry).starts_with(begin); }))
      set.emplace_back(*entry);
  for (const std::string& asked : flags.set) {
    if (asked.empty() || asked.front() == '=')
      throw UsageError(fmt::format("-x {}: NAME or NAME=value is expected", asked));
    if (asked.find('=') != std::string::npos) {
      set.push_back(asked);
      continue;
    }
    const char* value = std::getenv(asked.c_str());
    if (!value)
      throw UsageError(fmt::format("-x {0}: it is not set here; set it, or write -x {0}=value", asked));
    set.push_back(fmt::format("{}={}", asked, value));
  }
  return set;
}

std::vector<NodeRanks> placed_ranks(const LaunchFlags& flags) {
  if (!flags.hosts.empty() && !flags.hostfile.empty())
    throw UsageError("--hosts and --hostfile both say where ranks go; give one of them");
  const auto asked = flags.ranks > 0 ? std::optional(flags.ranks) : std::nullopt;
  if (flags.hosts.empty() && flags.hostfile.empty()) return {{0, this_host_name(), 0, asked.value_or(2)}};
  const auto hosts =
      value_or_usage_error(flags.hostfile.empty() ? parse_hosts(flags.hosts) : read_hostfile(flags.hostfile));
  auto nodes = value_or_usage_error(place_ranks(hosts, asked));
  if (const int world = nodes.back().first + nodes.back().count; world > kMostLaunched)
    throw UsageError(fmt::format("{} ranks are asked for, of {} at most", world, kMostLaunched));
  return nodes;
}

// Where rank 0 listens, as the other hosts know it.
std::string master_address(const LaunchFlags& flags, const std::vector<NodeRanks>& nodes) {
  if (!flags.master_address.empty()) return flags.master_address;
  if (std::all_of(nodes.begin(), nodes.end(), [](const NodeRanks& node) { return is_this_host(node.host); }))
    return "127.0.0.1";
  const std::string& first = nodes.front().host;
  if (flags.node_rank >= 0) return without_user(first);  // each host reads it for itself
  const std::string address = is_this_host(first) ? first : host_address(flags.ssh, first);
  if (nodes.size() > 1 && resolves_to_loopback(address))
    throw UsageError(
        fmt::format("--hosts {}: rank 0 would listen at a loopback address, where other hosts cannot reach "
                    "it; name that host by an address that they know, or give --master-addr ADDRESS",
                    first));
  return address;
}

LaunchPlan launch_plan(const LaunchFlags& flags) {
  const std::vector<NodeRanks> nodes = placed_ranks(flags);
  if (flags.node_rank >= static_cast<int>(nodes.size()))
    throw UsageError(fmt::format("--node-rank {}: there are {} hosts, from 0 to {}; --hosts names them all",
                                 flags.node_rank, nodes.size(), nodes.size() - 1));
  if (flags.ssh.find_first_not_of(' ') == std::string::npos)
    throw UsageError("--ssh '': name the program that reaches a host, as in --ssh \"ssh -F config\"");
  const bool by_hand = flags.node_rank >= 0;  // the user starts a launcher on every host
  LaunchPlan plan;
  plan.world          = nodes.back().first + nodes.back().count;
  plan.ssh            = flags.ssh;
  plan.master_port    = flags.master_port > 0 ? flags.master_port : by_hand ? kTorchrunsPort : 0;
  plan.master_address = master_address(flags, nodes);
  NodeJob job;
  job.nodes        = static_cast<int>(nodes.size());
  job.world        = plan.world;
  job.command      = flags.command;
  job.set          = variables_to_set(flags);
  job.force_nccl   = flags.force_nccl;
  job.nets_per_gpu = flags.nets_per_gpu;
  if (!flags.nccl_profile.empty()) job.nccl = value_or_usage_error(find_nccl_profile(flags.nccl_profile));
  for (const NodeRanks& node : nodes) {
    if (by_hand && node.node != flags.node_rank) continue;
    job.ranks = node;
    if (by_hand || is_this_host(node.host)) {
      job.directory = flags.directory;
      plan.here.push_back(job);
    } else {
      job.directory = (flags.directory.empty() ? std::filesystem::current_path()
                                               : std::filesystem::absolute(flags.directory))
                          .string();
      plan.elsewhere.push_back(job);
    }
  }
  return plan;
}

int print_profiles(const LaunchFlags& flags) {
  if (flags.nccl_profile.empty()) {
    for (const NcclProfile& profile : nccl_profiles()) fmt::print("{}\n", to_shell(profile));
    return kExitOk;
  }
  fmt::print("{}", to_shell(value_or_usage_error(find_nccl_profile(flags.nccl_profile))));
  return kExitOk;
}

int launch(const LaunchFlags& flags, const TrainingPlanFlags& training) {
  if (flags.follow) return follow_launcher();
  if (!training.mesh.empty()) {
    fmt::print("{}", training_plan_text(training, flags.nccl_profile));
    return kExitOk;
  }
  if (flags.print) return print_profiles(flags);
  if (flags.command.empty())
    throw UsageError(
        "after -- a command of fathom and its arguments are expected: launch --ranks 2 -- bench ...");
  if (flags.command.front() == "launch") throw UsageError("launch starts another command, not itself");
  return run_launch(launch_plan(flags));
}

}  // namespace

void add_launch(CLI::App& app, int& exit_code) {
  auto flags     = std::make_shared<LaunchFlags>();
  CLI::App& verb = *app.add_subcommand(
      "launch", "Start a command as several ranks, here or on several hosts: launch --ranks 2 -- bench ...");
  verb.add_option("--ranks", flags->ranks, "Processes to start; 2, or all that the hosts take")
      ->check(whole_between(1, kMostLaunched));
  verb.add_option("--hosts", flags->hosts, "Where: a:4,b:4, reached by ssh; without :N one rank")
      ->delimiter(',')
      ->allow_extra_args(false);  // else it would take the verb, too
  verb.add_option("--hostfile", flags->hostfile, "The same, a line a host: a slots=4");
  verb.add_option("--ssh", flags->ssh, "The program that reaches a host, with its arguments")
      ->capture_default_str();
  verb.add_option("--wdir", flags->directory, "Folder to work in, on every host; the present one");
  verb.add_option("-x", flags->set, "NAME or NAME=value for all ranks; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  verb.add_option("--master-addr", flags->master_address,
                  "Where ranks meet; the first host, as ssh's configuration names it");
  verb.add_option("--master-port", flags->master_port, "0: any port of rank 0's host that is free")
      ->check(whole_between(0, 65535))
      ->capture_default_str();
  verb.add_option("--node-rank", flags->node_rank,
                  "Start the ranks of this host of --hosts alone, without ssh")
      ->check(whole_between(0, kMostLaunched));
  verb.add_option("--nccl-profile", flags->nccl_profile,
                  "NCCL's settings for hopper, b200x8 or nvl72, or of a file (a path with a slash)");
  verb.add_flag("--force-nccl-profile", flags->force_nccl,
                "On hardware that it is not for, too; multicast is off then");
  verb.add_option("--nets-per-gpu", flags->nets_per_gpu,
                  "NICs for each rank's GPU, the nearest; 0: NCCL's choice")
      ->check(whole_between(0, 16))
      ->capture_default_str();
  verb.add_flag("--print", flags->print,
                "Print the NCCL profile, or all, as lines of a shell, and start nothing");
  const auto training = add_training_plan_flags(verb);
  verb.add_flag("--follow-launcher", flags->follow)->group("");
  verb.add_option("command", flags->command, "After --: a command of fathom and its arguments");
  verb.footer(
      "    fathom launch --hosts a:4,b:4 -- bench collectives\n"
      "    fathom launch --hosts a:4,b:4 --node-rank 1 -- bench collectives   # on b, without ssh\n"
      "    eval \"$(fathom launch --nccl-profile hopper --print)\"\n"
      "    fathom launch --plan dp2_tp4 --shape llama-3-8b --nccl-profile b200x8\n"
      "Each rank finds RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR and\n"
      "MASTER_PORT in its environment, as with torchrun. Its lines are printed with [rank] before them,\n"
      "signals are passed on to all, and where one rank fails the others are ended and its exit code is\n"
      "that of launch. Other hosts need the same build of fathom, at the same path or on their PATH, and\n"
      "the folder. FATHOM_*, NCCL_*, CUDA_* and OMP_* go with the ranks; -x adds more.");
  verb.callback([flags, training, &exit_code] { exit_code = launch(*flags, *training); });
}

}  // namespace fathom::cli
