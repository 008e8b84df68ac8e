// fathom bench collectives: latency and bandwidth of collectives between ranks, by message size.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cli/bench_flags.h"
#include "cli/fabric_report.h"
#include "cli/number_check.h"
#include "cli/output_flags.h"
#include "cli/usage_error.h"
#include "comm/tcp_group.h"
#include "comm/thread_group.h"
#include "core/exit_code.h"
#include "measure/statistics.h"

namespace fathom::cli {
namespace {

using comm::Group;
using comm::Operation;
using nlohmann::json;

constexpr Operation kBenched[] = {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter,
                                  Operation::all_to_all, Operation::broadcast,  Operation::barrier};

struct CollectiveFlags {
  std::vector<std::string> operations = {"all_reduce", "all_to_all"};
  int64_t min_bytes = 64, max_bytes = 16 << 20, factor = 16, iterations = 50, warmup = 5;
  int ranks = 2, nvlink = 0;
  bool fabric = false;
  OutputFlags outputs;
};

// One operation at one size.
struct CollectiveTimes {
  Operation operation;
  int64_t bytes;                // of a rank's buffer, all pieces together
  std::vector<double> calls_s;  // each the slowest rank's
  int64_t wrong;                // elements, on all ranks
  double bus_factor;
};

// Bytes over the links of a rank per byte of its buffer, by which bandwidths of different operations and
// numbers of ranks can be compared with a link's, as nccl-tests counts.
double bus_factor(Operation operation, int ranks) {
  const double n = ranks;
  switch (operation) {
    case Operation::all_reduce:
      return 2 * (n - 1) / n;
    case Operation::all_gather:
    case Operation::reduce_scatter:
    case Operation::all_to_all:
      return (n - 1) / n;
    default:
      return 1;
  }
}

// The buffers of a rank; values are small, so that sums are exact and tell which element came from whom.
class BenchedCall {
 public:
  BenchedCall(Operation operation, int64_t bytes, Group& group)
      : operation_(operation),
        group_(group),
        piece_(operation == Operation::barrier ? 0 : static_cast<size_t>(bytes) / sizeof(float) / ranks()) {
    const bool whole = operation == Operation::all_reduce || operation == Operation::broadcast;
    if (whole) piece_ *= ranks();
    in_.resize(operation == Operation::all_gather || whole ? piece_ : piece_ * ranks());
    out_.resize(operation == Operation::reduce_scatter || whole ? piece_ : piece_ * ranks());
    for (size_t i = 0; i < in_.size(); ++i) in_[i] = value(group.rank(), i);
  }

  int64_t bytes() const { return static_cast<int64_t>(std::max(in_.size(), out_.size()) * sizeof(float)); }

  void prepare() {
    if (operation_ == Operation::all_reduce || operation_ == Operation::broadcast) out_ = in_;
  }
  void call() {
    switch (operation_) {
      case Operation::all_reduce:
        return group_.all_reduce(std::span(out_));
      case Operation::all_gather:
        return group_.all_gather<float>(in_, out_);
      case Operation::reduce_scatter:
        return group_.reduce_scatter<float>(in_, out_);
      case Operation::all_to_all:
        return group_.all_to_all<float>(in_, out_);
      case Operation::broadcast:
        return group_.broadcast(std::span(out_), 0);
      default:
        return group_.barrier();
    }
  }

  // Elements of this rank that are not what they should be.
  int64_t wrong() const {
    int64_t wrong   = 0;
    const size_t me = static_cast<size_t>(group_.rank());
    for (size_t i = 0; i < out_.size(); ++i) {
      float want = 0;
      switch (operation_) {
        case Operation::all_reduce:
          want = sum(i);
          break;
        case Operation::all_gather:
          want = value(static_cast<int>(i / piece_), i % piece_);
          break;
        case Operation::reduce_scatter:
          want = sum(me * piece_ + i);
          break;
        case Operation::all_to_all:
          want = value(static_cast<int>(i / piece_), me * piece_ + i % piece_);
          break;
        default:
          want = value(0, i);
      }
      wrong += out_[i] != want;
    }
    return wrong;
  }

 private:
  size_t ranks() const { return static_cast<size_t>(group_.size()); }
  static float value(int rank, size_t i) {
    return static_cast<float>((rank + 1) * 7 + static_cast<int>(i % 1009));
  }
  float sum(size_t i) const {
    float total = 0;
    for (int rank = 0; rank < group_.size(); ++rank) total += value(rank, i);
    return total;
  }

  Operation operation_;
  Group& group_;
  size_t piece_;
  std::vector<float> in_, out_;
};

CollectiveTimes time_collective(Operation operation, int64_t bytes, const CollectiveFlags& flags,
                                Group& group) {
  BenchedCall benched(operation, bytes, group);
  const auto iterations = static_cast<size_t>(flags.iterations);
  std::vector<double> mine(iterations);
  for (int64_t i = -flags.warmup; i < flags.iterations; ++i) {
    benched.prepare();
    group.barrier();
    const auto start = std::chrono::steady_clock::now();
    benched.call();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (i >= 0) mine[static_cast<size_t>(i)] = took.count();
  }
  group.all_reduce(std::span(mine), comm::Reduction::max);
  std::vector<int64_t> wrong = {benched.wrong()};
  group.all_reduce(std::span(wrong));
  return {operation, benched.bytes(), std::move(mine), wrong[0], bus_factor(operation, group.size())};
}

std::vector<CollectiveTimes> time_collectives(const CollectiveFlags& flags, Group& group) {
  std::vector<CollectiveTimes> times;
  for (const std::string& name : flags.operations) {
    const Operation operation = *std::find_if(std::begin(kBenched), std::end(kBenched),
                                              [&](Operation known) { return to_string(known) == name; });
    for (int64_t bytes = flags.min_bytes; bytes <= flags.max_bytes; bytes *= flags.factor) {
      times.push_back(time_collective(operation, bytes, flags, group));
      if (operation == Operation::barrier) break;
    }
  }
  return times;
}

Table collectives_table(const std::vector<CollectiveTimes>& times) {
  Table table{.columns = {{"operation", false, false},
                          {"bytes", true},
                          {"median", true},
                          {"lowest", true},
                          {"p90", true},
                          {"bandwidth", true},
                          {"bus", true},
                          {"wrong", true}},
              .rows    = {}};
  for (const CollectiveTimes& t : times) {
    const double median = measure::median(t.calls_s);
    const auto us       = [](double s) { return fmt::format("{:.1f} us", s * 1e6); };
    const auto rate     = [&](double factor) {
      return fmt::format("{:.3g} GB/s", factor * static_cast<double>(t.bytes) / median * 1e-9);
    };
    table.rows.push_back({to_string(t.operation), std::to_string(t.bytes), us(median),
                          us(measure::quantile(t.calls_s, 0)), us(measure::quantile(t.calls_s, 0.9)), rate(1),
                          rate(t.bus_factor), std::to_string(t.wrong)});
  }
  return table;
}

json collectives_json(const std::vector<CollectiveTimes>& times, int ranks, const std::string& transport) {
  json rows = json::array();
  for (const CollectiveTimes& t : times) {
    const double median = measure::median(t.calls_s);
    rows.push_back({{"operation", to_string(t.operation)},
                    {"bytes", t.bytes},
                    {"median_s", median},
                    {"min_s", measure::quantile(t.calls_s, 0)},
                    {"p90_s", measure::quantile(t.calls_s, 0.9)},
                    {"bytes_per_s", static_cast<double>(t.bytes) / median},
                    {"bus_bytes_per_s", t.bus_factor * static_cast<double>(t.bytes) / median},
                    {"wrong", t.wrong}});
  }
  return {{"schema", "fathom.bench_collectives/1"},
          {"ranks", ranks},
          {"transport", transport},
          {"results", std::move(rows)}};
}

// Rank 0 speaks. Wrong elements are on all ranks' minds, so that all end with the same code.
int report_collectives(const CollectiveFlags& flags, const std::vector<CollectiveTimes>& times,
                       const Group& group, const std::string& transport) {
  if (group.rank() == 0) {
    const auto table = [&] { return collectives_table(times); };
    if (!write_outputs(flags.outputs,
                       {[&] { return collectives_json(times, group.size(), transport); }, table, table}))
      fmt::print("{} ranks, {}; a call is as long as its slowest rank's, {} calls each\n{}", group.size(),
                 transport, flags.iterations, to_text(table()));
  }
  const bool right = std::all_of(times.begin(), times.end(), [](const auto& t) { return t.wrong == 0; });
  return right ? kExitOk : kExitWrongOutput;
}

int report_fabric(const CollectiveFlags& flags, const Fabric& fabric, const Group& group,
                  const std::string& transport) {
  if (group.rank() == 0) {
    const auto table = [&] { return fabric_table(fabric); };
    if (!write_outputs(flags.outputs, {[&] { return fabric_json(fabric, transport); }, table, table}))
      fmt::print("{} ranks, {}; one pair at a time, {} round trips of 8 bytes and transfers of 4 MiB\n{}",
                 group.size(), transport, flags.iterations, fabric_text(fabric));
  }
  const bool right =
      std::all_of(fabric.pairs.begin(), fabric.pairs.end(), [](const auto& pair) { return pair.wrong == 0; });
  return right ? kExitOk : kExitWrongOutput;
}

// On every rank.
int bench_group(const CollectiveFlags& flags, Group& group, const std::string& transport) {
  if (flags.fabric)
    return report_fabric(flags, measure_fabric(group, static_cast<int>(flags.iterations), flags.nvlink),
                         group, transport);
  return report_collectives(flags, time_collectives(flags, group), group, transport);
}

int bench_collectives(const CollectiveFlags& flags) {
  const auto options    = value_or_usage_error(comm::group_options_from_environment());
  const auto rendezvous = value_or_usage_error(comm::rendezvous_from_environment());
  if (rendezvous)
    return bench_group(flags, *comm::join_tcp_group(*rendezvous, options), "processes over TCP");
  auto groups = comm::make_thread_groups(flags.ranks, options);
  std::vector<std::thread> others;
  for (size_t rank = 1; rank < groups.size(); ++rank)
    others.emplace_back([&, rank] {
      try {
        bench_group(flags, *groups[rank], "threads");
      } catch (const comm::GroupError&) {  // rank 0 has it too
      }
      groups[rank].reset();
    });
  int exit_code = kExitCrash;
  std::string failure;
  try {
    exit_code = bench_group(flags, *groups[0], "threads");
  } catch (const std::exception& error) {
    failure = error.what();
  }
  groups[0].reset();
  for (std::thread& other : others) other.join();
  if (!failure.empty()) throw std::runtime_error(failure);
  return exit_code;
}

}  // namespace

void add_bench_collectives(CLI::App& bench, int& exit_code) {
  auto flags     = std::make_shared<CollectiveFlags>();
  CLI::App& verb = *bench.add_subcommand(
      "collectives", "Collectives between ranks: latency and bandwidth by message size, results checked");
  std::vector<std::string> names;
  for (const Operation operation : kBenched) names.emplace_back(to_string(operation));
  verb.add_option("--op", flags->operations, "Which, several with commas")
      ->delimiter(',')
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  const auto number = [&](const char* name, int64_t& value, const char* help, int64_t least) {
    verb.add_option(name, value, help)->check(whole_at_least(least, int64_t{1} << 32))->capture_default_str();
  };
  number("--min-bytes", flags->min_bytes, "Smallest buffer of a rank", 1);
  number("--max-bytes", flags->max_bytes, "Largest buffer", 1);
  number("--factor", flags->factor, "Factor from one size to the next", 2);
  number("--num-iters", flags->iterations, "Timed calls", 1);
  number("--num-iters-warmup", flags->warmup, "Warm-up calls", 0);
  verb.add_option("--ranks", flags->ranks, "Threads of this process, where `fathom launch` started no ranks")
      ->check(whole_between(1, 64))
      ->capture_default_str();
  verb.add_flag("--fabric", flags->fabric,
                "Instead: latency and bandwidth of every pair of ranks, the slow ones named");
  verb.add_option("--nvlink", flags->nvlink,
                  "With --fabric: so many ranks one after the other share an NVLink domain; 0: hosts only")
      ->check(whole_between(0, 4096))
      ->capture_default_str();
  add_output_flags(verb, flags->outputs);
  verb.footer(
      "    fathom bench collectives --ranks 4\n"
      "    fathom launch --ranks 4 -- bench collectives --op all_to_all\n"
      "    fathom launch --hosts a:4,b:4 -- bench collectives --fabric\n"
      "bus: the bandwidth times the bytes that an ideal algorithm moves over a rank's link for each byte\n"
      "of its buffer, as nccl-tests counts: 2 (n - 1) / n of an all_reduce. FATHOM_GROUP_TIMEOUT: seconds\n"
      "that a rank is waited for (30). Pairs of GPUs of a host: fathom doctor.");
  verb.callback([flags, &exit_code] { exit_code = bench_collectives(*flags); });
}

}  // namespace fathom::cli
