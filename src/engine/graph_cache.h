// CUDA graphs by key, each captured when it is first needed. Where a capture fails, its work is launched
// kernel by kernel from then on: slower, with the same results.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/expect.h"
#include "cuda/stream.h"

namespace fathom::engine {

// `Graph` is CudaGraph (cuda/graph.h), or a test's.
template <class Key, class Graph>
class GraphCache {
 public:
  // `warn` gets the reason of the first capture that fails.
  explicit GraphCache(std::function<void(const std::string&)> warn) : warn_(std::move(warn)) {}

  // Captures what `enqueue` enqueues on `stream`, which for equal keys is the same work, unless it was
  // captured before. Throws DeviceLost.
  void prepare(const Key& key, StreamRef stream, const std::function<void()>& enqueue) {
    if (!graphs_.contains(key)) graphs_.emplace(key, capture(stream, enqueue));
  }

  // Runs it, after prepare(). Throws what `enqueue` throws outside a capture, and DeviceLost.
  void run(const Key& key, StreamRef stream, const std::function<void()>& enqueue) {
    prepare(key, stream, enqueue);
    if (const auto& graph = graphs_.find(key)->second) {
      graph->launch(stream);
    } else {
      ++fallbacks_;
      enqueue();
    }
  }

  int64_t captured() const { return captured_; }
  // Runs without a graph.
  int64_t fallbacks() const { return fallbacks_; }

 private:
  std::optional<Graph> capture(StreamRef stream, const std::function<void()>& enqueue) {
    try {
      std::optional<Graph> graph(std::in_place, stream, enqueue);
      ++captured_;
      return graph;
    } catch (const DeviceLost&) {
      throw;  // nothing can be launched any more
    } catch (const SystemError& error) {
      if (!std::exchange(warned_, true)) warn_(error.what());
      return std::nullopt;
    }
  }

  std::map<Key, std::optional<Graph>> graphs_;  // none: the capture failed
  std::function<void(const std::string&)> warn_;
  int64_t captured_ = 0, fallbacks_ = 0;
  bool warned_ = false;
};

}  // namespace fathom::engine
