#include "engine/replica_router.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "core/expect.h"

namespace fathom::engine {
namespace {

void add_eplb(const EplbStats& one, EplbStats& sum) {
  for (const auto part : {&EplbStats::plans_taken, &EplbStats::plans_refused, &EplbStats::experts_moved,
                          &EplbStats::max_rank_tokens})
    sum.*part += one.*part;
  for (const auto part : {&EplbStats::seconds, &EplbStats::mean_rank_tokens}) sum.*part += one.*part;
  if (one.balancedness) sum.balancedness = std::min(sum.balancedness.value_or(1), *one.balancedness);
}

}  // namespace

int64_t ApproxPrefixCache::match(const std::vector<uint64_t>& blocks) const {
  int64_t count = 0;
  for (const uint64_t block : blocks) {
    if (!entries_.contains(block)) break;
    ++count;
  }
  return count;
}

void ApproxPrefixCache::insert(const std::vector<uint64_t>& blocks) {
  // The first block is used whenever a later one is, so it must be evicted last.
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
    if (const auto at = entries_.find(*block); at != entries_.end()) {
      lru_.splice(lru_.begin(), lru_, at->second);
    } else {
      lru_.push_front(*block);
      entries_.emplace(*block, lru_.begin());
    }
  }
  while (static_cast<int64_t>(entries_.size()) > capacity_) {
    entries_.erase(lru_.back());
    lru_.pop_back();
  }
}

std::vector<uint64_t> prompt_blocks(const Request& request, int64_t page_size) {
  std::vector<uint64_t> blocks;
  uint64_t before   = XXH3_64bits(request.cache_salt.data(), request.cache_salt.size());
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  for (int64_t end = page_size; end < tokens; end += page_size) {
    const model::TokenId* from = request.prompt.data() + end - page_size;
    before = XXH3_64bits_withSeed(from, static_cast<size_t>(page_size) * sizeof(model::TokenId), before);
    blocks.push_back(before);
  }
  return blocks;
}

ReplicaRouter::ReplicaRouter(std::vector<std::unique_ptr<Generator>> replicas, const Options& options)
    : options_(options), replicas_(std::move(replicas)) {
  FATHOM_EXPECT(!replicas_.empty(), "a router needs a replica");
  FATHOM_EXPECT(options.page_size > 0 && options.open_below <= options.close_above,
                "a router's pages hold a token, and its lower mark is not above the upper");
  for (size_t r = 0; r < replicas_.size(); ++r)
    states_.push_back({.prefixes = ApproxPrefixCache(options.cache_tokens / options.page_size)});
}

size_t ReplicaRouter::cheapest(const std::vector<uint64_t>& blocks) const {
  const bool all_closed =
      std::all_of(states_.begin(), states_.end(), [](const Replica& replica) { return replica.closed; });
  const auto cost = [&](const Replica& replica) {
    const int64_t saved = replica.prefixes.match(blocks) * options_.page_size;
    // Ties go to the replica with fewer requests so far.
    return std::pair(replica.work - static_cast<double>(saved), replica.routed);
  };
  size_t best = states_.size();
  for (size_t r = 0; r < states_.size(); ++r) {
    if (states_[r].closed && !all_closed) continue;
    if (best == states_.size() || cost(states_[r]) < cost(states_[best])) best = r;
  }
  return best;
}

void ReplicaRouter::change_work(Replica& replica, double by) const {
  replica.work += by;
  if (replica.work > options_.close_above) replica.closed = true;
  if (replica.work < options_.open_below) replica.closed = false;
}

std::variant<RequestId, Refusal> ReplicaRouter::submit(Request request, Listener listener) {
  const auto prompt  = static_cast<double>(request.prompt.size());
  const auto longest = static_cast<double>(request.max_tokens);
  // Held during the replica's submit(), so that update() on the replica's thread finds the request.
  const std::lock_guard lock(mutex_);
  const RequestId id = next_id_++;
  Routed routed;
  std::vector<uint64_t> blocks;
  if (options_.policy == Policy::round_robin) {
    routed.replica = (id - 1) % replicas_.size();
  } else {
    blocks              = prompt_blocks(request, options_.page_size);
    routed.replica      = cheapest(blocks);
    const int64_t known = states_[routed.replica].prefixes.match(blocks);
    routed.prompt       = prompt - static_cast<double>(known * options_.page_size);
    routed.answer =
        options_.token_cost * (answers_ > 0 ? std::min(longest, answer_tokens_ / answers_) : longest);
  }
  auto taken = replicas_[routed.replica]->submit(
      std::move(request), [this, id, listener = std::move(listener)](const RequestOutput& progress) {
        update(id, progress);
        listener(progress);
      });
  if (std::holds_alternative<Refusal>(taken)) return taken;
  routed.id        = std::get<RequestId>(taken);
  Replica& replica = states_[routed.replica];
  replica.prefixes.insert(blocks);
  ++replica.routed;
  change_work(replica, routed.prompt + routed.answer);
  routed_.emplace(id, routed);
  return id;
}

void ReplicaRouter::update(RequestId id, const RequestOutput& progress) {
  const std::lock_guard lock(mutex_);
  const auto at       = routed_.find(id);
  Routed& routed      = at->second;
  const double before = routed.prompt + routed.answer;
  const auto tokens   = static_cast<int64_t>(progress.tokens.size());
  if (tokens > 0) routed.prompt = 0;
  routed.answered += tokens;
  routed.answer    = std::max(0.0, routed.answer - options_.token_cost * static_cast<double>(tokens));
  const bool ended = progress.finish.has_value();
  change_work(states_[routed.replica], (ended ? 0 : routed.prompt + routed.answer) - before);
  if (!ended) return;
  if (progress.finish == FinishReason::stop || progress.finish == FinishReason::length) {
    ++answers_;
    answer_tokens_ += static_cast<double>(routed.answered);
  }
  routed_.erase(at);
}

void ReplicaRouter::cancel(RequestId id, FinishReason reason) {
  Routed routed;
  {
    const std::lock_guard lock(mutex_);
    const auto at = routed_.find(id);
    if (at == routed_.end()) return;
    routed = at->second;
  }
  replicas_[routed.replica]->cancel(routed.id, reason);
}

GeneratorStats ReplicaRouter::stats() const {
  GeneratorStats sum;
  for (const auto& replica : replicas_) {
    const GeneratorStats one = replica->stats();
    for (const auto part : {&GeneratorStats::running,           &GeneratorStats::waiting,
                            &GeneratorStats::waiting_tokens,    &GeneratorStats::pages,
                            &GeneratorStats::pages_in_use,      &GeneratorStats::prompt_tokens,
                            &GeneratorStats::generated_tokens,  &GeneratorStats::prefix_queried_tokens,
                            &GeneratorStats::prefix_hit_tokens, &GeneratorStats::received_hit_tokens,
                            &GeneratorStats::preemptions,       &GeneratorStats::admission_holds,
                            &GeneratorStats::held_steps,        &GeneratorStats::forgotten_pages,
                            &GeneratorStats::setting_changes,   &GeneratorStats::steps,
                            &GeneratorStats::step_rows,         &GeneratorStats::graphs,
                            &GeneratorStats::graph_fallbacks,   &GeneratorStats::drafts,
                            &GeneratorStats::drafted_tokens,    &GeneratorStats::accepted_tokens})
      sum.*part += one.*part;
    for (const auto part :
         {&GeneratorStats::schedule_s, &GeneratorStats::forward_s, &GeneratorStats::sample_s})
      sum.*part += one.*part;
    for (const auto part : {&MemoryUse::weights, &MemoryUse::kv_cache, &MemoryUse::workspace})
      sum.memory.*part += one.memory.*part;
    sum.stalled_s = std::max(sum.stalled_s, one.stalled_s);
    for (const auto imbalance : {&GeneratorStats::router_imbalance, &GeneratorStats::rank_imbalance})
      if (one.*imbalance) sum.*imbalance = std::max((sum.*imbalance).value_or(0), *(one.*imbalance));
    if (one.eplb) add_eplb(*one.eplb, sum.eplb ? *sum.eplb : sum.eplb.emplace());
    for (size_t i = 0; i < sum.steps_by_rows.size(); ++i) sum.steps_by_rows[i] += one.steps_by_rows[i];
    for (size_t i = 0; i < sum.setting_s.size(); ++i) sum.setting_s[i] += one.setting_s[i];
    for (size_t i = 0; i < sum.accepted_at.size(); ++i) sum.accepted_at[i] += one.accepted_at[i];
    for (size_t i = 0; i < sum.finished.size(); ++i) sum.finished[i] += one.finished[i];
  }
  return sum;
}

int64_t ReplicaRouter::max_context() const {
  int64_t least = replicas_.front()->max_context();
  for (const auto& replica : replicas_) least = std::min(least, replica->max_context());
  return least;
}

bool ReplicaRouter::drain(std::chrono::nanoseconds timeout) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  for (const auto& replica : replicas_)
    replica->drain(std::chrono::nanoseconds(0));  // all refuse new requests from now on
  bool empty = true;
  for (const auto& replica : replicas_) {
    const auto left = deadline - std::chrono::steady_clock::now();
    empty           = replica->drain(std::max<std::chrono::nanoseconds>(left, {})) && empty;
  }
  return empty;
}

std::vector<int64_t> ReplicaRouter::routed() const {
  const std::lock_guard lock(mutex_);
  std::vector<int64_t> counts;
  for (const Replica& replica : states_) counts.push_back(replica.routed);
  return counts;
}

}  // namespace fathom::engine
