#include "comm/group_checks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>

#include "comm/thread_group.h"
#include "core/rng.h"
#include "core/splitmix64.h"

namespace fathom::comm {
namespace {

// What a rank puts in: the same on every rank that asks.
template <class T>
std::vector<T> input_of(int rank, size_t n, uint64_t seed) {
  std::vector<T> values(n);
  const uint64_t own = seed * 64 + static_cast<uint64_t>(rank);
  if constexpr (std::is_integral_v<T>)
    fill_integers(values.data(), static_cast<int64_t>(n), own, T{-1000}, T{1000});
  else
    fill_uniform(values.data(), static_cast<int64_t>(n), own, -1, 1);
  return values;
}

template <class T>
T combined(T a, T b, Reduction reduction) {
  if (reduction == Reduction::sum) return a + b;
  return reduction == Reduction::max ? std::max(a, b) : std::min(a, b);
}

// Element by element, in the order of ranks; 16-bit formats in fp32.
template <class T>
std::vector<T> reduced(int size, size_t n, uint64_t seed, Reduction reduction) {
  using Accumulator = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
  std::vector<Accumulator> total(n);
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<T> values = input_of<T>(rank, n, seed);
    for (size_t i = 0; i < n; ++i) {
      const auto value = static_cast<Accumulator>(values[i]);
      total[i]         = rank == 0 ? value : combined(total[i], value, reduction);
    }
  }
  std::vector<T> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<T>(total[i]);
  return out;
}

template <class T>
bool same(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

template <class T>
std::string wrong_reductions(Group& group, size_t n, uint64_t seed, Reduction reduction) {
  const int size  = group.size();
  const auto text = [&](const char* what) {
    return fmt::format("{} of {} x {} ({}) is wrong on rank {}", what, n, traits(dtype_of<T>).name,
                       to_string(reduction), group.rank());
  };
  std::vector<T> data = input_of<T>(group.rank(), n, seed);
  group.all_reduce(std::span(data), reduction);
  if (!same<T>(data, reduced<T>(size, n, seed, reduction))) return text("all_reduce");

  const std::vector<T> all = input_of<T>(group.rank(), n * static_cast<size_t>(size), seed);
  std::vector<T> mine(n);
  group.reduce_scatter<T>(all, mine, reduction);
  const std::vector<T> want = reduced<T>(size, all.size(), seed, reduction);
  if (!same<T>(mine, std::span(want).subspan(static_cast<size_t>(group.rank()) * n, n)))
    return text("reduce_scatter");
  return "";
}

std::string wrong_movements(Group& group, size_t n, uint64_t seed, int root) {
  const auto text = [&](const char* what) {
    return fmt::format("{} of {} elements is wrong on rank {}", what, n, group.rank());
  };
  const auto size           = static_cast<size_t>(group.size());
  const auto me             = static_cast<size_t>(group.rank());
  std::vector<int32_t> data = input_of<int32_t>(group.rank(), n, seed);
  std::vector<int32_t> all(n * size), want;
  group.all_gather<int32_t>(data, all);
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto piece = input_of<int32_t>(rank, n, seed);
    want.insert(want.end(), piece.begin(), piece.end());
  }
  if (all != want) return text("all_gather");

  const std::vector<int32_t> out = input_of<int32_t>(group.rank(), n * size, seed);
  group.all_to_all<int32_t>(out, all);
  for (size_t rank = 0; rank < size; ++rank) {
    const auto theirs = input_of<int32_t>(static_cast<int>(rank), n * size, seed);
    std::copy_n(theirs.begin() + static_cast<int64_t>(me * n), n,
                want.begin() + static_cast<int64_t>(rank * n));
  }
  if (all != want) return text("all_to_all");

  group.broadcast(std::span(data), root);
  if (data != input_of<int32_t>(root, n, seed)) return text("broadcast");

  if (group.size() == 1) return "";
  const int next                  = (group.rank() + 1) % group.size(),
            before                = (group.rank() + group.size() - 1) % group.size();
  const std::vector<int32_t> mine = input_of<int32_t>(group.rank(), n, seed);
  group.send_receive<int32_t>(mine, next, data, before);
  if (data != input_of<int32_t>(before, n, seed)) return text("send_receive");
  if (group.rank() == 0) group.send<int32_t>(mine, 1);
  if (group.rank() == 1) {
    group.receive(std::span(data), 0);
    if (data != input_of<int32_t>(0, n, seed)) return text("receive");
  }
  return "";
}

std::string wrong_reductions(Group& group, DType dtype, size_t n, uint64_t seed, Reduction reduction) {
  switch (dtype) {
    case DType::fp64:
      return wrong_reductions<double>(group, n, seed, reduction);
    case DType::fp32:
      return wrong_reductions<float>(group, n, seed, reduction);
    case DType::bf16:
      return wrong_reductions<bf16>(group, n, seed, reduction);
    case DType::fp16:
      return wrong_reductions<fp16>(group, n, seed, reduction);
    case DType::int64:
      return wrong_reductions<int64_t>(group, n, seed, reduction);
    default:
      return wrong_reductions<int32_t>(group, n, seed, reduction);
  }
}

constexpr DType kReducedTypes[]      = {DType::fp64, DType::fp32,  DType::bf16,
                                        DType::fp16, DType::int64, DType::int32};
constexpr Reduction kAllReductions[] = {Reduction::sum, Reduction::max, Reduction::min};

}  // namespace

std::string wrong_collectives(Group& group) {
  uint64_t seed = 1;
  for (const size_t n : {0, 1, 31, 17'011}) {
    for (const DType dtype : kReducedTypes)
      for (const Reduction reduction : kAllReductions) {
        if (n > 31 && reduction != Reduction::sum) continue;  // the order of sums is what size may change
        if (const auto wrong = wrong_reductions(group, dtype, n, ++seed, reduction); !wrong.empty())
          return wrong;
      }
    for (int root = 0; root < group.size(); ++root)
      if (const auto wrong = wrong_movements(group, n, ++seed, root); !wrong.empty()) return wrong;
    group.barrier();
  }
  return "";
}

std::string wrong_random_program(Group& group, uint64_t seed, int steps) {
  auto random = [state = seed]() mutable { return splitmix64(state += kSplitmix64Increment); };
  for (int step = 0; step < steps; ++step) {
    const uint64_t kind       = random() % 3;
    const size_t n            = random() % 8 == 0 ? random() % 9'000 : random() % 40;
    const uint64_t fill       = random();
    const auto root           = static_cast<int>(random() % static_cast<uint64_t>(group.size()));
    const DType dtype         = kReducedTypes[random() % std::size(kReducedTypes)];
    const Reduction reduction = kAllReductions[random() % std::size(kAllReductions)];
    std::string wrong;
    if (kind == 0) wrong = wrong_movements(group, n, fill, root);
    if (kind == 1) wrong = wrong_reductions(group, dtype, n, fill, reduction);
    if (kind == 2) group.barrier();
    if (!wrong.empty()) return wrong + fmt::format(", in step {}", step);
  }
  return "";
}

std::vector<std::optional<GroupError>> on_threads(int size, const GroupOptions& options,
                                                  const std::function<void(Group&)>& rank_main) {
  auto groups = make_thread_groups(size, options);
  std::vector<std::optional<GroupError>> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < groups.size(); ++rank)
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Group> mine = std::move(groups[rank]);
      try {
        rank_main(*mine);
      } catch (const GroupError& error) {
        errors[rank] = error;
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void expect_all_well(const std::vector<std::optional<GroupError>>& errors) {
  for (size_t rank = 0; rank < errors.size(); ++rank)
    EXPECT_FALSE(errors[rank]) << "rank " << rank << ": " << errors[rank]->what();
}

}  // namespace fathom::comm
