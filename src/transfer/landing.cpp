#include "transfer/landing.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "core/expect.h"

namespace fathom::transfer {
namespace {

uint64_t random_epoch() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace

Landing::Landing(const Options& options)
    : options_(options),
      epoch_(random_epoch()),
      memory_(static_cast<size_t>(std::max<int64_t>(options.pages * options.page_bytes, 1))) {
  FATHOM_EXPECT(options.pages >= 0 && options.page_bytes > 0, "a page of the landing memory holds a byte");
  for (int64_t page = options.pages; page-- > 0;)
    free_.push_back(static_cast<uint64_t>(page * options.page_bytes));
}

std::optional<Grant> Landing::grant(std::span<const uint64_t> slices, TimePoint now, Done done) {
  FATHOM_EXPECT(!slices.empty(), "a transfer has at least one slice");
  for (const uint64_t bytes : slices)
    FATHOM_EXPECT(bytes <= static_cast<uint64_t>(options_.page_bytes), "a slice fits in a page");
  const std::lock_guard lock(mutex_);
  if (free_.size() < slices.size()) return {};
  State state{.arrived  = std::vector<bool>(slices.size()),
              .missing  = slices.size(),
              .deadline = now + options_.lease,
              .latest   = now + options_.limit,
              .done     = std::move(done)};
  state.grant.tag = {.transfer = next_++, .epoch = epoch_};
  for (const uint64_t bytes : slices) {
    state.grant.slices.push_back({.offset = free_.back(), .bytes = bytes});
    free_.pop_back();
  }
  Grant granted = state.grant;
  states_.emplace(granted.tag.transfer, std::move(state));
  return granted;
}

Landing::States::iterator Landing::find(const Tag& tag) {
  return tag.epoch == epoch_ ? states_.find(tag.transfer) : states_.end();
}

// Counts an immediate of a live transfer; `right`: its bytes are whole.
Landing::Answer Landing::count(States::iterator at, const Immediate& immediate, bool right, TimePoint now,
                               Done& ended, Outcome& outcome) {
  State& state = at->second;
  if (immediate.failed || !right) {
    ended = end(at, outcome = Outcome::failed);
    return Answer::refused;
  }
  state.arrived[immediate.slice] = true;
  state.deadline                 = std::max(state.deadline, now + options_.lease);
  if (--state.missing == 0) ended = end(at, outcome = Outcome::complete);
  return Answer::taken;
}

Landing::Answer Landing::arrive(const Immediate& immediate, std::span<const std::byte> bytes, TimePoint now) {
  Done ended;
  Outcome outcome{};
  Answer answer = Answer::refused;
  {
    const std::lock_guard lock(mutex_);
    const auto at = find(immediate.tag);
    if (at == states_.end() || immediate.slice >= at->second.arrived.size()) return Answer::refused;
    if (at->second.arrived[immediate.slice] && !immediate.failed) return Answer::repeated;
    if (at->second.ended) return Answer::refused;
    const Range& range = at->second.grant.slices[immediate.slice];
    const bool right   = !immediate.failed && bytes.size() == range.bytes &&
                       checksum_of(immediate.tag, immediate.slice, bytes) == immediate.checksum;
    if (right && !bytes.empty())
      std::memcpy(memory_.bytes().data() + range.offset, bytes.data(), bytes.size());
    answer = count(at, immediate, right, now, ended, outcome);
  }
  if (ended) ended(outcome);
  return answer;
}

bool Landing::renew(const Tag& tag, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const auto at = find(tag);
  if (at == states_.end() || at->second.ended) return false;
  at->second.deadline = std::max(at->second.deadline, now + options_.lease);
  return true;
}

bool Landing::claim(const Tag& tag, WriterId writer) {
  const std::lock_guard lock(mutex_);
  const auto at = find(tag);
  if (at == states_.end() || at->second.ended) return false;
  WriterId& holder = at->second.writer;
  if (holder == 0) holder = writer;
  return holder == writer;
}

Landing::Answer Landing::arrive_in_place(const Immediate& immediate, WriterId writer, TimePoint now) {
  Done ended;
  Outcome outcome{};
  Answer answer = Answer::refused;
  {
    const std::lock_guard lock(mutex_);
    const auto at = find(immediate.tag);
    if (at == states_.end() || at->second.writer != writer || immediate.slice >= at->second.arrived.size())
      return Answer::refused;
    if (at->second.arrived[immediate.slice] && !immediate.failed) return Answer::repeated;
    if (at->second.ended) return Answer::refused;
    const auto [offset, bytes] = at->second.grant.slices[immediate.slice];
    const bool right           = !immediate.failed &&
                       checksum_of(immediate.tag, immediate.slice, memory_.bytes().subspan(offset, bytes)) ==
                           immediate.checksum;
    answer = count(at, immediate, right, now, ended, outcome);
  }
  if (ended) ended(outcome);
  return answer;
}

// Returns what to call when the lock is released.
Landing::Done Landing::end(States::iterator at, Outcome outcome) {
  Done done        = std::move(at->second.done);
  at->second.ended = true;
  if (outcome != Outcome::complete) {
    at->second.released = true;
    reclaim(at);
  }
  return done;
}

// Frees the pages of a transfer that nobody reads any more, unless somebody may still write to them.
void Landing::reclaim(States::iterator at) {
  if (at->second.writer != 0) return;
  for (const Range& range : at->second.grant.slices) free_.push_back(range.offset);
  states_.erase(at);
}

void Landing::writer_gone(WriterId writer) {
  std::vector<Done> ended;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = states_.begin(); at != states_.end();) {
      const auto next = std::next(at);
      if (at->second.writer == writer) {
        at->second.writer = 0;
        if (!at->second.ended)
          ended.push_back(end(at, Outcome::failed));
        else if (at->second.released)
          reclaim(at);
      }
      at = next;
    }
  }
  for (const Done& done : ended) done(Outcome::failed);
}

void Landing::expire(TimePoint now) {
  std::vector<Done> ended;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = states_.begin(); at != states_.end();) {
      const auto next = std::next(at);
      if (!at->second.ended && now >= std::min(at->second.deadline, at->second.latest))
        ended.push_back(end(at, Outcome::expired));
      at = next;
    }
  }
  for (const Done& done : ended) done(Outcome::expired);
}

void Landing::revoke(const Tag& tag) {
  Done ended;
  {
    const std::lock_guard lock(mutex_);
    const auto at = find(tag);
    if (at == states_.end() || at->second.ended) return;
    ended = end(at, Outcome::revoked);
  }
  ended(Outcome::revoked);
}

std::span<const std::byte> Landing::slice(const Grant& grant, uint32_t index) const {
  const auto [offset, bytes] = grant.slices[index];
  return memory_.bytes().subspan(offset, bytes);
}

void Landing::release(const Tag& tag) {
  const std::lock_guard lock(mutex_);
  const auto at = find(tag);
  FATHOM_EXPECT(at != states_.end() && at->second.ended && !at->second.released,
                "a complete transfer is released once");
  at->second.released = true;
  reclaim(at);
}

int64_t Landing::free_pages() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(free_.size());
}

int64_t Landing::quarantined_pages() const {
  const std::lock_guard lock(mutex_);
  int64_t pages = 0;
  for (const auto& [transfer, state] : states_)
    if (state.released) pages += static_cast<int64_t>(state.grant.slices.size());
  return pages;
}

}  // namespace fathom::transfer
