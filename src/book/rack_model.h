// Collectives of GPUs in racks: a message of b bytes takes a fixed time and b / bandwidth (Hockney, 1994).
// GPUs form domains, within which every GPU reaches every other by NVLink; between domains each has a port of
// the network. Modelled, never measured: contention, the kernels that copy and sum, and the overlap of phases
// are left out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fathom::book {

struct RackLink {
  double start_us = 0;  // of a message
  double gb_s     = 1;  // of one GPU, in one direction
};

struct Cluster {
  int gpus        = 8;
  int domain      = 8;  // GPUs that NVLink connects; divides gpus
  RackLink inside = {}, between = {};
  bool sums_in_switch = false;  // NVLink's switches add up (SHARP), within a domain

  int domains() const { return gpus / domain; }
};

// Microseconds of an all-reduce of `bytes` on each GPU.
struct AllReduceTimes {
  // Ring (Patarasuk and Yuan, 2009): 2 (p - 1) steps, each as slow as its slowest link. As many rings as a
  // domain has GPUs, so that each GPU's port carries one; a domain then sends by all of them at once.
  double ring = 0;
  // Two binary trees, each for half of the bytes (Sanders, Speck and Traff, 2009): up and down, pipelined. An
  // edge between domains is shared among the ports of a domain, as rings are.
  double tree = 0;
  // Reduce-scatter within a domain, a ring over the domains for each GPU's part, all-gather within; the three
  // one after another. Within a domain all messages of a half leave at once.
  double hierarchical = 0;
  // The switch adds up: a GPU sends its numbers once and receives the sum. 0 where it cannot.
  double in_switch = 0;
};
AllReduceTimes all_reduce_times(const Cluster& cluster, double bytes);

// An MoE layer whose experts are spread over `ranks` GPUs, whole domains of them or a part of one. A token
// chooses top_k different experts, all equally often.
struct ExpertGroup {
  int experts = 256, top_k = 8;
  int ranks               = 8;
  int64_t tokens          = 128;         // of a rank
  double row_bytes        = 7168;        // of a token to an expert
  double result_row_bytes = 2 * 7168;    // and back
  double expert_bytes     = 44'040'192;  // of an expert's weights
};

// What a token is sent as to another domain.
enum class Dispatch {
  copy_per_expert,  // once for each expert that is there
  copy_per_domain,  // once, and passed on within the domain, where results are also summed before they return
};

struct ExpertExchange {
  double inside_copies  = 0;  // of a token, over NVLink to other GPUs
  double between_copies = 0;  // of a token, over the network
  double us             = 0;  // dispatch and combine; both kinds of link at once
  double memory_bytes   = 0;  // of a rank, for the weights of its experts
  double rows           = 0;  // of an expert in a step: how often its weights are used once they are read
};
ExpertExchange expert_exchange(const Cluster& cluster, const ExpertGroup& group, Dispatch dispatch);

// Which domain each expert lies in, equally many in each, by what is known of their tokens:
// load[domain * experts + expert] tokens of that domain choose the expert. The pairs with most tokens are
// served first; then two experts exchange domains while that keeps more tokens at home.
std::vector<int> place_by_locality(std::span<const int64_t> load, int experts, int domains);
// Expert e in domain e mod domains.
std::vector<int> place_in_turn(int experts, int domains);
// Tokens that leave their domain.
int64_t crossings(std::span<const int64_t> load, std::span<const int> domain_of_expert, int domains);

}  // namespace fathom::book
