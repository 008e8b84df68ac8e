#include "book/warp_model.h"

namespace fathom::book {
namespace {

constexpr int32_t kWordBytes = 4;

bool is_active(uint32_t active, int32_t lane) { return active >> lane & 1; }

int64_t element_of(const WarpAccess& access, int32_t lane) {
  return access.base + static_cast<int64_t>(access.stride) * lane;
}

// Elements are aligned to their size and no larger than a sector, so each lies in one.
int32_t sector_of(const WarpAccess& access, int32_t lane) {
  return global_address(access, lane) / kSectorBytes;
}

// The first bank and the row decide: elements of one size that share a bank share all of theirs.
int32_t bank_of(const WarpAccess& access, int32_t lane) {
  return shared_address(access, lane) / kWordBytes % kBanks;
}

int32_t word_of(const WarpAccess& access, int32_t lane) { return shared_address(access, lane) / kWordBytes; }

// Whether an active lane from `first` to before `lane` already has the same key.
template <typename Key>
bool seen_before(const WarpAccess& access, uint32_t active, int32_t first, int32_t lane, Key key) {
  for (int32_t other = first; other < lane; ++other)
    if (is_active(active, other) && key(access, other) == key(access, lane)) return true;
  return false;
}

template <typename Key>
int32_t distinct(const WarpAccess& access, uint32_t active, Key key) {
  int32_t count = 0;
  for (int32_t lane = 0; lane < kLanes; ++lane)
    count += is_active(active, lane) && !seen_before(access, active, 0, lane, key);
  return count;
}

int32_t passes_of_group(const WarpAccess& access, uint32_t active, int32_t first) {
  int32_t passes = 0;
  for (int32_t lane = first; lane < first + group_lanes(access.element_bytes); ++lane) {
    const int32_t pass = bank_pass(access, active, lane) + 1;
    passes             = pass > passes ? pass : passes;
  }
  return passes;
}

}  // namespace

bool possible(const WarpAccess& access) {
  const int32_t bytes = access.element_bytes;
  if (bytes < 1 || bytes > 16 || (bytes & (bytes - 1)) != 0) return false;
  const int64_t first = element_of(access, 0), last = element_of(access, kLanes - 1);
  const int64_t most = (int64_t{1} << 31) / bytes;
  return first >= 0 && last >= 0 && first < most && last < most;
}

int32_t global_address(const WarpAccess& access, int32_t lane) {
  return static_cast<int32_t>(element_of(access, lane) * access.element_bytes);
}

int32_t shared_address(const WarpAccess& access, int32_t lane) {
  const int32_t plain = global_address(access, lane);
  if (!access.swizzle) return plain;
  const int32_t unit = access.element_bytes < kWordBytes ? kWordBytes : access.element_bytes;
  const int32_t row  = plain / kRowBytes;
  return plain ^ (row % (kRowBytes / unit) * unit);
}

int32_t path_of(Branch branch, int32_t k, int32_t lane) {
  switch (branch) {
    case Branch::none:
      return 0;
    case Branch::guard:
      return lane < k ? 0 : -1;
    case Branch::if_else:
      return lane < k ? 0 : 1;
    case Branch::remainder:
      return lane % k;
    case Branch::quotient:
      return lane / k;
  }
  return -1;
}

uint32_t lanes_of_path(Branch branch, int32_t k, int32_t path) {
  uint32_t lanes = 0;
  for (int32_t lane = 0; lane < kLanes; ++lane)
    if (path_of(branch, k, lane) == path) lanes |= uint32_t{1} << lane;
  return lanes;
}

int32_t paths(Branch branch, int32_t k) {
  int32_t count = 0;
  for (int32_t path = 0; path < kLanes; ++path) count += lanes_of_path(branch, k, path) != 0;
  return count;
}

int32_t sectors(const WarpAccess& access, uint32_t active) { return distinct(access, active, sector_of); }

int32_t bytes_wanted(const WarpAccess& access, uint32_t active) {
  return distinct(access, active, global_address) * access.element_bytes;
}

int32_t group_lanes(int32_t element_bytes) {
  return element_bytes <= kWordBytes ? kLanes : kLanes * kWordBytes / element_bytes;
}

int32_t bank_pass(const WarpAccess& access, uint32_t active, int32_t lane) {
  if (!is_active(active, lane)) return -1;
  const int32_t first = lane - lane % group_lanes(access.element_bytes);
  // Lanes that want a word already asked for are served with the first of them.
  int32_t asks = first;
  while (!is_active(active, asks) || word_of(access, asks) != word_of(access, lane)) ++asks;
  int32_t pass = 0;
  for (int32_t other = first; other < asks; ++other)
    pass += is_active(active, other) && bank_of(access, other) == bank_of(access, asks) &&
            !seen_before(access, active, first, other, word_of);
  return pass;
}

int32_t bank_passes(const WarpAccess& access, uint32_t active) {
  int32_t sum = 0;
  for (int32_t first = 0; first < kLanes; first += group_lanes(access.element_bytes))
    sum += passes_of_group(access, active, first);
  return sum;
}

int32_t conflict_degree(const WarpAccess& access, uint32_t active) {
  int32_t most = 0;
  for (int32_t first = 0; first < kLanes; first += group_lanes(access.element_bytes)) {
    const int32_t passes = passes_of_group(access, active, first);
    most                 = passes > most ? passes : most;
  }
  return most;
}

}  // namespace fathom::book
