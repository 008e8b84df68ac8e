// One rank of an experiment in which several do a step together: collectives, tensor parallelism.
//
// The constructor of such a problem gets its rank; every rank has a problem, arena, stream and GPU of its
// own:
//
//   struct AllReduce {
//     View<const float, 1> in;
//     View<float, 1> out;
//     AllReduce(const Point& at, Arena& arena, const Rank& rank);
//     Cost cost() const;                                        // of this rank
//     Sum expected(const AllRanks<AllReduce>& ranks, int64_t i) const;  // or check(Checker&, ranks)
//     void put_nonce(Context& context) const;                   // optional
//     uint64_t nonce_sum(Context& context) const;
//   };
//
// Every step carries a nonce of each rank, and every rank must return the sum of all of them (mod 2^64): a
// step that did not reach the other ranks cannot know it. Put the nonce into the message itself, so that it
// takes the same way as the data: put_nonce() writes rank.nonce() there before the clock starts (a CPU
// variant may read rank.nonce() in the step instead), nonce_sum() reads the result after it stopped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace fathom {
class Device;
}

namespace fathom::lab {

class Rank {
 public:
  Rank(int rank, int size, Device* device, std::span<std::byte> shared, std::function<void()> barrier)
      : rank_(rank), size_(size), device_(device), shared_(shared), barrier_(std::move(barrier)) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  Device* device() const { return device_; }  // of this rank; null for a rank on the CPU
  // Host memory of the whole group, shared by all ranks at one address; zero before the first step. Ranks
  // exchange addresses and NCCL's unique id here.
  std::span<std::byte> shared() const { return shared_; }
  // Waits for all ranks. For launch and prepare, not for a problem's constructor: references build the
  // problems of other ranks.
  void barrier() const { barrier_(); }
  // Of the present step.
  uint64_t nonce() const { return nonce_; }
  void set_nonce(uint64_t nonce) { nonce_ = nonce; }

 private:
  int rank_, size_;
  Device* device_;
  std::span<std::byte> shared_;
  std::function<void()> barrier_;
  uint64_t nonce_ = 0;
};

// The problems of all ranks in host memory, with the inputs of the present step: what a reference reads.
template <class P>
class AllRanks {
 public:
  explicit AllRanks(std::vector<const P*> problems) : problems_(std::move(problems)) {}
  int size() const { return static_cast<int>(problems_.size()); }
  const P& operator[](int rank) const { return *problems_[static_cast<size_t>(rank)]; }

 private:
  std::vector<const P*> problems_;
};

}  // namespace fathom::lab
