#include "comm/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/reduce.h"
#include "core/expect.h"

namespace fathom::comm {
namespace {

// Up to here an all-reduce sends whole messages to everybody (one step), beyond it reduces pieces and gathers
// them (two steps, but each byte travels twice instead of size - 1 times). The bits are the same.
constexpr size_t kOneShotBytes = 32 << 10;

void copy_bytes(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty() && from.data() != to.data()) std::memmove(to.data(), from.data(), from.size());
}

}  // namespace

const char* to_string(Operation operation) {
  switch (operation) {
    case Operation::join:
      return "join";
    case Operation::barrier:
      return "barrier";
    case Operation::broadcast:
      return "broadcast";
    case Operation::all_reduce:
      return "all_reduce";
    case Operation::all_gather:
      return "all_gather";
    case Operation::reduce_scatter:
      return "reduce_scatter";
    case Operation::all_to_all:
      return "all_to_all";
    case Operation::message:
      return "message";
  }
  return "unknown operation";
}

const char* to_string(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return "sum";
    case Reduction::max:
      return "max";
    case Reduction::min:
      return "min";
  }
  return "unknown reduction";
}

const char* to_string(GroupError::Cause cause) {
  switch (cause) {
    case GroupError::Cause::died:
      return "died";
    case GroupError::Cause::timed_out:
      return "timed_out";
    case GroupError::Cause::left:
      return "left";
    case GroupError::Cause::mismatch:
      return "mismatch";
  }
  return "unknown cause";
}

std::string to_string(const Call& call) {
  std::string text = to_string(call.operation);
  if (call.sequence > 0) text += fmt::format(" (collective {})", call.sequence);
  if (call.operation != Operation::barrier) text += fmt::format(" of {} bytes", call.bytes);
  if (call.operation == Operation::all_reduce || call.operation == Operation::reduce_scatter)
    text += fmt::format(" ({} of {})", to_string(call.reduction), traits(call.dtype).name);
  if (call.root >= 0) text += fmt::format(" from rank {}", call.root);
  return text;
}

Group::Group(int rank, int size, const GroupOptions& options)
    : rank_(rank), size_(size), timeout_(options.timeout) {
  FATHOM_EXPECT(size >= 1 && rank >= 0 && rank < size, "a rank is from 0 to the group's size - 1");
  FATHOM_EXPECT(options.timeout.count() > 0, "a group needs a timeout above 0");
}

Call Group::next_call(Operation operation, size_t bytes) {
  return {.operation = operation, .bytes = bytes, .sequence = ++collectives_};
}

Call Group::header_of(const Call& call, size_t bytes) {
  Call header = call;
  if (call.operation == Operation::message) header.bytes = bytes;
  return header;
}

GroupError Group::late(const Call& call, int rank) const {
  return {GroupError::Cause::timed_out, rank, call.operation,
          fmt::format("rank {} did not come to {} within {:.6g} s", rank, to_string(call),
                      std::chrono::duration<double>(timeout_).count())};
}

GroupError Group::waits_in_a_circle(const Call& call, int rank) const {
  return {GroupError::Cause::timed_out, rank, call.operation,
          fmt::format("no rank got on with {} within {:.6g} s: ranks {} and {} wait for each other, or in a "
                      "circle; do all call the same operations in the same order?",
                      to_string(call), std::chrono::duration<double>(timeout_).count(), rank_, rank)};
}

GroupError Group::gone(const Call& call, int rank, GroupError::Cause cause) const {
  return {cause, rank, call.operation,
          fmt::format("rank {} {} while others were in {}", rank,
                      cause == GroupError::Cause::left ? "left the group" : "died", to_string(call))};
}

GroupError Group::differs(const Call& call, int rank, const Call& theirs) const {
  return {
      GroupError::Cause::mismatch, rank, call.operation,
      fmt::format("rank {} called {}, rank {} called {}", rank, to_string(theirs), rank_, to_string(call))};
}

void Group::run(const Call& call) {
  const std::vector<Outgoing> outgoing = std::exchange(outgoing_, {});
  const std::vector<Incoming> incoming = std::exchange(incoming_, {});
  if (broken_) throw GroupError(*broken_);
  if (outgoing.empty() && incoming.empty()) return;
  try {
    exchange(call, outgoing, incoming);
  } catch (const GroupError& error) {
    broken_ = error;
    throw;
  }
}

void Group::add_to_all(std::span<const std::byte> bytes) {
  // The next rank first, so that ranks do not all write to rank 0 at once.
  for (int step = 1; step < size_; ++step) outgoing_.push_back({(rank_ + step) % size_, bytes});
}

std::span<std::byte> Group::scratch(size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return std::span(scratch_).first(bytes);
}

std::vector<std::byte*> Group::receive_from_all(size_t bytes) {
  const std::span<std::byte> memory = scratch(bytes * static_cast<size_t>(size_ - 1));
  std::vector<std::byte*> pieces(static_cast<size_t>(size_), nullptr);
  size_t used = 0;
  for (int from = 0; from < size_; ++from) {
    if (from == rank_) continue;
    incoming_.push_back({from, memory.subspan(used, bytes)});
    pieces[static_cast<size_t>(from)] = incoming_.back().bytes.data();
    used += bytes;
  }
  return pieces;
}

void Group::barrier() {
  const Call call = next_call(Operation::barrier, 0);
  add_to_all({});
  receive_from_all(0);
  run(call);
}

void Group::broadcast_bytes(std::span<std::byte> data, int root) {
  FATHOM_EXPECT(root >= 0 && root < size_, "the root of a broadcast is a rank of the group");
  Call call = next_call(Operation::broadcast, data.size());
  call.root = root;
  if (rank_ == root)
    add_to_all(data);
  else
    incoming_.push_back({root, data});
  run(call);
}

void Group::all_reduce_bytes(std::span<std::byte> data, DType dtype, Reduction reduction) {
  FATHOM_EXPECT(can_reduce(dtype), "reductions are for fp64, fp32, bf16, fp16, int64 and int32");
  const size_t element = static_cast<size_t>(traits(dtype).bits) / 8;
  Call call            = next_call(Operation::all_reduce, data.size());
  call.dtype           = dtype;
  call.reduction       = reduction;

  const bool one_shot = data.size() <= kOneShotBytes;
  const size_t n      = data.size() / element;
  const auto first    = [&](int rank) {  // element of a rank's segment
    return n * static_cast<size_t>(rank) / static_cast<size_t>(size_);
  };
  const auto segment = [&](int rank) {
    return one_shot ? data : data.subspan(first(rank) * element, (first(rank + 1) - first(rank)) * element);
  };
  const std::span<std::byte> mine = segment(rank_);
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_;
    outgoing_.push_back({to, segment(to)});
  }
  std::vector<std::byte*> sources     = receive_from_all(mine.size());
  sources[static_cast<size_t>(rank_)] = mine.data();
  run(call);
  reduce(dtype, reduction, sources, mine.data(), static_cast<int64_t>(mine.size() / element));
  if (one_shot) return;

  add_to_all(mine);
  for (int from = 0; from < size_; ++from)
    if (from != rank_) incoming_.push_back({from, segment(from)});
  run(call);
}

void Group::all_gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all) {
  FATHOM_EXPECT(all.size() == mine.size() * static_cast<size_t>(size_),
                "the result of an all_gather has room for a piece of each rank");
  const Call call  = next_call(Operation::all_gather, mine.size());
  const auto piece = [&](int rank) {
    return all.subspan(static_cast<size_t>(rank) * mine.size(), mine.size());
  };
  add_to_all(mine);
  for (int from = 0; from < size_; ++from)
    if (from != rank_) incoming_.push_back({from, piece(from)});
  run(call);
  copy_bytes(mine, piece(rank_));
}

void Group::reduce_scatter_bytes(std::span<const std::byte> all, std::span<std::byte> mine, DType dtype,
                                 Reduction reduction) {
  FATHOM_EXPECT(can_reduce(dtype), "reductions are for fp64, fp32, bf16, fp16, int64 and int32");
  FATHOM_EXPECT(all.size() == mine.size() * static_cast<size_t>(size_),
                "the input of a reduce_scatter has a piece for each rank");
  Call call        = next_call(Operation::reduce_scatter, mine.size());
  call.dtype       = dtype;
  call.reduction   = reduction;
  const auto piece = [&](int rank) {
    return all.subspan(static_cast<size_t>(rank) * mine.size(), mine.size());
  };
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_;
    outgoing_.push_back({to, piece(to)});
  }
  const std::vector<std::byte*> received = receive_from_all(mine.size());
  std::vector<const std::byte*> sources(received.begin(), received.end());
  sources[static_cast<size_t>(rank_)] = piece(rank_).data();
  run(call);
  reduce(dtype, reduction, sources, mine.data(), static_cast<int64_t>(mine.size()) * 8 / traits(dtype).bits);
}

void Group::all_to_all_bytes(std::span<const std::byte> out, std::span<std::byte> in) {
  FATHOM_EXPECT(out.size() == in.size() && out.size() % static_cast<size_t>(size_) == 0,
                "an all_to_all has a piece for each rank and one from each, all of one size");
  const size_t bytes = out.size() / static_cast<size_t>(size_);
  const Call call    = next_call(Operation::all_to_all, bytes);
  const auto at      = [&](int rank) { return static_cast<size_t>(rank) * bytes; };
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_;
    outgoing_.push_back({to, out.subspan(at(to), bytes)});
    const int from = (rank_ - step + size_) % size_;
    incoming_.push_back({from, in.subspan(at(from), bytes)});
  }
  run(call);
  copy_bytes(out.subspan(at(rank_), bytes), in.subspan(at(rank_), bytes));
}

void Group::message_bytes(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) {
  const auto other = [&](int rank) { return rank >= -1 && rank < size_ && rank != rank_; };
  FATHOM_EXPECT(other(to) && other(from), "a message goes to another rank of the group");
  if (to >= 0) outgoing_.push_back({to, out});
  if (from >= 0) incoming_.push_back({from, in});
  run({.operation = Operation::message});
}

}  // namespace fathom::comm
