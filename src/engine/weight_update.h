// Replaces the weights of an engine while it serves. The new ones are loaded on a thread of their own, beside
// the old ones, which serve on; the engine swaps them between two steps. So both are in memory from the load
// to the swap, the new ones always as a copy in memory: the first steps then wait for no disk, and a trainer
// may write its next weights over these files.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/result.h"
#include "engine/config.h"
#include "model/config.h"
#include "model/processed_weights.h"
#include "model/safetensors.h"

namespace fathom::engine {

struct WeightUpdate {
  // What becomes of requests that have begun when the weights are there. Requests that have not get the new
  // weights in all modes. The names are vLLM's (pause_generation) and, of retract, SGLang's.
  enum class Mode {
    wait,     // they end first, by the old weights; no other request begins before
    abort,    // they end with what they have (FinishReason::cancelled)
    keep,     // they go on: keys and values stay, of the old weights, and the next tokens are of the new ones
    retract,  // they go on, and their keys and values are computed again, by the new weights
  };

  std::filesystem::path folder;  // safetensors and a config.json equal to that of the served model
  Mode mode           = Mode::wait;
  std::string version = {};  // reported with the answers
};

inline constexpr std::array<std::string_view, 4> kUpdateModeNames = {"wait", "abort", "keep", "retract"};

struct LoadedWeights {
  model::Safetensors tensors;
  std::vector<model::ProcessedWeights> ranks;  // views into `tensors`; a part for each rank on CPUs
  int64_t bytes = 0;                           // of `tensors`
};

// Fails where the folder cannot be read, or where it does not have the served model's config and tensors; the
// error names the difference. Uses one thread, because the engine's own compute meanwhile.
Result<LoadedWeights> load_weights(const std::filesystem::path& folder, const model::Config& served,
                                   const EngineConfig& config);

// The thread that loads, and the hand-over. An engine has one.
class WeightUpdater {
 public:
  using Load = std::function<Result<LoadedWeights>()>;
  // Called once, on the updater's thread: without an error when the new weights are in use and the old ones
  // freed. It may not call start().
  using Done = std::function<void(const Status&)>;

  // `wake` is called when weights are loaded.
  explicit WeightUpdater(std::function<void()> wake) : wake_(std::move(wake)) {}
  ~WeightUpdater() { end(); }

  // From any thread. Refuses while another update is under way.
  Status start(WeightUpdate update, Load load, Done done);
  // Waits for the thread; an update that is not swapped yet is given up, with an error.
  void end();

  // For the engine's thread. Weights are loaded and wait for swapped().
  bool loaded() const { return loaded_ != nullptr; }
  // While loaded().
  const WeightUpdate& update() const { return update_; }
  LoadedWeights& weights() { return *loaded_; }
  // What is in weights() now can be freed: the old ones, or after an error the new ones.
  void swapped(const Status& status);

 private:
  void run(const Load& load, const Done& done);
  Status load_and_wait(const Load& load);

  const std::function<void()> wake_;
  WeightUpdate update_;
  std::atomic<LoadedWeights*> loaded_ = nullptr;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Under mutex_.
  std::optional<Status> swapped_;
  bool busy_ = false, ending_ = false;
  std::thread thread_;
};

}  // namespace fathom::engine
