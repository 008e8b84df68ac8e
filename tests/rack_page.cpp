// docs/rack.md: what one NVLink domain of 72 GPUs saves over racks of 8. Modelled (book/rack_model.h), not
// measured.
//   rack_page FILE            writes it
//   rack_page FILE --check    fails if the file is not what the model gives
#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "book/rack_model.h"
#include "tests/write_or_check.h"

namespace fathom::book {
namespace {

struct Named {
  const char* name;
  Cluster cluster;
};

const std::array<Named, 3> kClusters = {{
    {"one domain of 72",
     {.gpus = 72, .domain = 72, .inside = {2, 900}, .between = {}, .sums_in_switch = true}},
    {"9 racks of 8, InfiniBand", {.gpus = 72, .domain = 8, .inside = {2, 450}, .between = {5, 50}}},
    {"9 racks of 8, Ethernet", {.gpus = 72, .domain = 8, .inside = {2, 450}, .between = {20, 50}}},
}};

std::string us(double time) {
  if (time == 0) return "";
  return time < 1000 ? fmt::format("{:.0f} us", time) : fmt::format("{:.1f} ms", time / 1000);
}

constexpr const char* kHead = R"(# One NVLink domain of 72 GPUs, or racks of 8

**Modelled**, every number on this page; none was measured here, and none stands beside a measured one elsewhere. `src/book/rack_model.h` is the model, its test compares it with rings stepped link by link, with drawn tokens and with all placements of small cases,
and `tests/rack_page.cpp` writes this page (a test fails when it is out of date). A message takes a fixed time and its bytes over a bandwidth. Contention, the kernels that copy and sum, and overlap of phases are left out, and bandwidths are the maker's: a
measured all-reduce is slower. The orders and the ratios are the point.

| | in a domain, each GPU, one way | between domains, each GPU, one way |
|---|---|---|
| one domain of 72 (NVL72) | 900 GB/s, half of NVLink 5's 1.8 TB/s; 72 of them are the rack's 130 TB/s both ways (NVIDIA's figures for GB200 NVL72) | |
| 9 racks of 8 | 450 GB/s, half of NVLink 4's 900 GB/s (NVIDIA's for H100) | 50 GB/s, a port of 400 Gb/s for each GPU (NVIDIA's for DGX H100) |

The fixed time of a message is *assumed*: 2 us by NVLink, 5 us by InfiniBand, 20 us by Ethernet. InfiniBand and Ethernet differ in nothing else here.

)";

std::string all_reduces() {
  std::string text =
      "## All-reduce over 72 GPUs\n\n"
      "A ring takes 142 steps, each as slow as its slowest link. Two binary trees (as NCCL has them) climb "
      "and descend once. The hierarchy sums within a domain, then each GPU's part over the domains, then "
      "gathers; within a domain all of a half's messages leave at once. In the switch (NVLink SHARP), which "
      "needs a domain of its own, a GPU sends its numbers once. A sum of 64 KiB is nearly all fixed time, "
      "one of "
      "1 GiB nearly all bytes.\n\n"
      "| bytes | cluster | ring | tree | hierarchy | in the switch |\n|---|---|---|---|---|---|\n";
  const std::array<std::pair<const char*, double>, 3> sizes = {
      {{"64 KiB", 64.0 * 1024}, {"16 MiB", 16.0 * 1024 * 1024}, {"1 GiB", 1024.0 * 1024 * 1024}}};
  for (const auto& [size, bytes] : sizes)
    for (const Named& at : kClusters) {
      const AllReduceTimes times = all_reduce_times(at.cluster, bytes);
      text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", size, at.name, us(times.ring), us(times.tree),
                          us(times.hierarchical), us(times.in_switch));
    }
  return text + "\n";
}

std::string exchanges() {
  std::string text =
      "## Experts over 4, 8 and 72 GPUs\n\n"
      "A layer of DeepSeek-V3's shape (arXiv 2412.19437): 7168 features, experts of 2048 units in FP8 (44 "
      "MB), 8 for each token, 288 replicas of experts, all chosen equally often; 128 tokens on each GPU; "
      "rows go out in FP8 and come back in bf16. "
      "Wider groups hold fewer weights on a GPU, and use each that they read for more rows (grouped GEMM); "
      "for that nearly all rows travel. Between racks a row may travel once for each expert, or once for "
      "each rack that has any of its experts.\n\n"
      "| experts over | cluster | weights of a layer on a GPU | rows of an expert | copies of a token by "
      "NVLink | by the network | dispatch and combine |\n|---|---|---|---|---|---|---|\n";
  for (const int ranks : {4, 8, 72})
    for (const Named& at : kClusters)
      for (const Dispatch dispatch : {Dispatch::copy_per_expert, Dispatch::copy_per_domain}) {
        const bool crosses = ranks > at.cluster.domain;
        if (!crosses && (dispatch == Dispatch::copy_per_domain || &at == &kClusters[2])) continue;
        const ExpertExchange e = expert_exchange(at.cluster, {.experts = 288, .ranks = ranks}, dispatch);
        const char* how        = !crosses                                ? ""
                                 : dispatch == Dispatch::copy_per_expert ? ", a copy for each expert"
                                                                         : ", a copy for each rack";
        text += fmt::format("| {} | {}{} | {:.2f} GB | {:.0f} | {:.2f} | {:.2f} | {} |\n", ranks,
                            crosses || &at == &kClusters[0] ? at.name : "a rack of 8", how,
                            e.memory_bytes / 1e9, e.rows, e.inside_copies, e.between_copies, us(e.us));
      }
  return text + "\n";
}

// Of a domain's tokens `share` choose among its 32 favourites of 288, which lie anywhere; the rest choose
// alike.
std::vector<int64_t> loads(double share) {
  constexpr int kExperts = 288, kDomains = 9;
  std::vector<int64_t> load;
  for (int d = 0; d < kDomains; ++d)
    for (int e = 0; e < kExperts; ++e) {
      const bool favourite = e * 37 % kExperts / (kExperts / kDomains) == d;
      load.push_back(static_cast<int64_t>(1000 * (1 - share + (favourite ? kDomains * share : 0)) + 0.5));
    }
  return load;
}

std::string localities() {
  std::string text =
      "## Placement by locality\n\n"
      "If tokens of a rack favour some experts (a tenant, a language), these can lie in it. In each of 9 "
      "racks a share of the tokens chooses among the rack's own 32 of 288 experts, the rest among all. Where "
      "all racks choose alike no placement keeps more than a ninth at home, and only "
      "a router that prefers near experts would, which changes what the model computes.\n\n"
      "| tokens with a favourite of their rack | leave the rack, experts in turn | by locality "
      "|\n|---|---|---|\n";
  for (const double share : {0.0, 0.25, 0.5, 0.75}) {
    const std::vector<int64_t> load = loads(share);
    double all                      = 0;
    for (const int64_t tokens : load) all += static_cast<double>(tokens);
    const auto leave = [&](const std::vector<int>& placement) {
      return 100 * static_cast<double>(crossings(load, placement, 9)) / all;
    };
    text += fmt::format("| {:.0f} % | {:.0f} % | {:.0f} % |\n", 100 * share, leave(place_in_turn(288, 9)),
                        leave(place_by_locality(load, 288, 9)));
  }
  return text;
}

std::string page() { return kHead + all_reduces() + exchanges() + localities(); }

}  // namespace
}  // namespace fathom::book

int main(int argc, char** argv) {
  return fathom::write_or_check(argc, argv, "rack_page", fathom::book::page());
}
