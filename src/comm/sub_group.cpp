#include "comm/sub_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/expect.h"

namespace fathom::comm {
namespace {

// A class may call a protected member of its base on objects of its own type alone. The member's pointer has
// no such limit, and a class that does not override it names that of Group.
struct AnyGroup : Group {
  static constexpr auto kExchange = &AnyGroup::exchange;
};

int place_of(const Group& whole, const std::vector<int>& ranks) {
  const auto mine = std::find(ranks.begin(), ranks.end(), whole.rank());
  FATHOM_EXPECT(mine != ranks.end(),
                fmt::format("rank {} makes a sub-group of {}, without itself", whole.rank(), ranks));
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  FATHOM_EXPECT(sorted.front() >= 0 && sorted.back() < whole.size() &&
                    std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
                fmt::format("{}: different ranks from 0 to {} are expected", ranks, whole.size() - 1));
  return static_cast<int>(mine - ranks.begin());
}

}  // namespace

SubGroup::SubGroup(Group& whole, std::vector<int> ranks)
    : Group(place_of(whole, ranks), static_cast<int>(ranks.size()), {}),
      whole_(whole),
      ranks_(std::move(ranks)) {}

void SubGroup::exchange(const Call& call, std::span<const Outgoing> outgoing,
                        std::span<const Incoming> incoming) {
  Call in_whole = call;
  if (call.root >= 0) in_whole.root = ranks_[static_cast<size_t>(call.root)];  // as errors name it
  outgoing_.clear();
  incoming_.clear();
  for (const Outgoing& out : outgoing) {
    outgoing_.push_back({ranks_[static_cast<size_t>(out.to)], out.bytes});
    sent_bytes_ += static_cast<int64_t>(out.bytes.size());
  }
  for (const Incoming& in : incoming) incoming_.push_back({ranks_[static_cast<size_t>(in.from)], in.bytes});
  (whole_.*AnyGroup::kExchange)(in_whole, outgoing_, incoming_);
}

}  // namespace fathom::comm
