#include "book/rack_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/expect.h"

namespace fathom::book {
namespace {

double us_of(double bytes, double gb_s) { return bytes / (gb_s * 1e3); }

int levels(int n) {  // of a binary tree
  int count = 0;
  for (int reached = 1; reached < n; reached *= 2) ++count;
  return count;
}

void expect_whole_domains(const Cluster& cluster) {
  FATHOM_EXPECT(cluster.domain >= 1 && cluster.gpus >= 1 && cluster.gpus % cluster.domain == 0,
                "a cluster is whole domains of GPUs");
}

// Of k different ones of n, chosen equally often: the chance that none is among m of them.
double none_among(int m, int n, int k) {
  double chance = 1;
  for (int i = 0; i < k; ++i) chance *= std::max(0.0, static_cast<double>(n - m - i) / (n - i));
  return chance;
}

}  // namespace

AllReduceTimes all_reduce_times(const Cluster& cluster, double bytes) {
  expect_whole_domains(cluster);
  const double p = cluster.gpus, d = cluster.domain, domains = cluster.domains();
  if (cluster.gpus == 1) return {};
  const bool network = cluster.domains() > 1;
  const double start =
      network ? std::max(cluster.inside.start_us, cluster.between.start_us) : cluster.inside.start_us;
  const double gb_s = network ? std::min(cluster.inside.gb_s, d * cluster.between.gb_s) : cluster.inside.gb_s;

  AllReduceTimes times;
  times.ring = 2 * (p - 1) * (start + us_of(bytes / p, gb_s));
  times.tree = 2 * (levels(cluster.domain) * cluster.inside.start_us +
                    levels(cluster.domains()) * cluster.between.start_us) +
               us_of(2 * bytes, gb_s);
  if (cluster.domain > 1)
    times.hierarchical += 2 * (cluster.inside.start_us + us_of((d - 1) / d * bytes, cluster.inside.gb_s));
  if (network)
    times.hierarchical +=
        2 * (domains - 1) * (cluster.between.start_us + us_of(bytes / d / domains, cluster.between.gb_s));
  if (cluster.sums_in_switch && !network)
    times.in_switch = 2 * cluster.inside.start_us + us_of(bytes, cluster.inside.gb_s);
  return times;
}

ExpertExchange expert_exchange(const Cluster& cluster, const ExpertGroup& group, Dispatch dispatch) {
  expect_whole_domains(cluster);
  FATHOM_EXPECT(group.ranks >= 1 && group.ranks <= cluster.gpus && group.experts >= group.ranks &&
                    group.top_k >= 1 && group.top_k <= group.experts,
                "experts are spread over GPUs of the cluster, one or more on each");
  FATHOM_EXPECT(group.ranks <= cluster.domain || group.ranks % cluster.domain == 0,
                "a group of ranks lies within a domain, or is whole domains");
  const double k = group.top_k, ranks = group.ranks, tokens = static_cast<double>(group.tokens);
  const int domain     = std::min(cluster.domain, group.ranks);
  const double domains = ranks / domain;

  // Of a token's k copies one in `ranks` is for its own GPU. What a domain receives from outside by one copy
  // lands on the GPU with the sender's number, and is for another of the domain's GPUs d - 1 times in d.
  ExpertExchange exchange;
  exchange.inside_copies = k * (domain - 1) / ranks;
  if (dispatch == Dispatch::copy_per_expert) {
    exchange.between_copies = k * (ranks - domain) / ranks;
  } else {
    const int of_domain     = static_cast<int>(std::lround(group.experts / domains));
    exchange.between_copies = (domains - 1) * (1 - none_among(of_domain, group.experts, group.top_k));
    exchange.inside_copies += k * (ranks - domain) / ranks * (domain - 1) / domain;
  }
  const double bytes = tokens * (group.row_bytes + group.result_row_bytes);
  const double inside =
      exchange.inside_copies > 0
          ? 2 * cluster.inside.start_us + us_of(exchange.inside_copies * bytes, cluster.inside.gb_s)
          : 0;
  const double between =
      exchange.between_copies > 0
          ? 2 * cluster.between.start_us + us_of(exchange.between_copies * bytes, cluster.between.gb_s)
          : 0;
  exchange.us           = std::max(inside, between);
  exchange.memory_bytes = std::ceil(group.experts / ranks) * group.expert_bytes;
  exchange.rows         = tokens * ranks * k / group.experts;
  return exchange;
}

std::vector<int> place_in_turn(int experts, int domains) {
  std::vector<int> placement(static_cast<size_t>(experts));
  for (int e = 0; e < experts; ++e) placement[static_cast<size_t>(e)] = e % domains;
  return placement;
}

std::vector<int> place_by_locality(std::span<const int64_t> load, int experts, int domains) {
  FATHOM_EXPECT(domains >= 1 && experts % domains == 0 &&
                    load.size() == static_cast<size_t>(experts) * static_cast<size_t>(domains),
                "as many experts in each domain, and the load of each from each domain");
  const auto of = [&](int domain, int expert) {
    return load[static_cast<size_t>(domain) * static_cast<size_t>(experts) + static_cast<size_t>(expert)];
  };
  // Every pair of an expert and a domain, those with most tokens first; ties go to the lower numbers.
  std::vector<int> pairs(load.size());
  std::iota(pairs.begin(), pairs.end(), 0);
  std::stable_sort(pairs.begin(), pairs.end(),
                   [&](int a, int b) { return load[static_cast<size_t>(a)] > load[static_cast<size_t>(b)]; });
  std::vector<int> placement(static_cast<size_t>(experts), -1);
  std::vector<int> room(static_cast<size_t>(domains), experts / domains);
  for (const int pair : pairs) {
    const int domain = pair / experts, expert = pair % experts;
    if (placement[static_cast<size_t>(expert)] >= 0 || room[static_cast<size_t>(domain)] == 0) continue;
    placement[static_cast<size_t>(expert)] = domain;
    --room[static_cast<size_t>(domain)];
  }
  // The greedy choice may leave two experts each in the other's domain; exchange them while that gains.
  for (bool gained = true; gained;) {
    gained = false;
    for (int a = 0; a < experts; ++a)
      for (int b = a + 1; b < experts; ++b) {
        int &of_a = placement[static_cast<size_t>(a)], &of_b = placement[static_cast<size_t>(b)];
        if (of(of_b, a) + of(of_a, b) <= of(of_a, a) + of(of_b, b)) continue;
        std::swap(of_a, of_b);
        gained = true;
      }
  }
  return placement;
}

int64_t crossings(std::span<const int64_t> load, std::span<const int> domain_of_expert, int domains) {
  const size_t experts = domain_of_expert.size();
  int64_t count        = 0;
  for (size_t d = 0; d < static_cast<size_t>(domains); ++d)
    for (size_t e = 0; e < experts; ++e)
      if (domain_of_expert[e] != static_cast<int>(d)) count += load[d * experts + e];
  return count;
}

}  // namespace fathom::book
