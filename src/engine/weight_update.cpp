#include "engine/weight_update.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "core/thread_pool.h"
#include "engine/resolve_config.h"
#include "model/contiguous_experts.h"
#include "model/shard.h"

namespace fathom::engine {
namespace {

std::vector<model::ProcessedWeights> processed(const model::Config& served, const EngineConfig& config,
                                               const model::Weights& weights) {
  ThreadPool thread(1);
  const model::ShardOptions options = shard_options(config);
  // As RankedRunner's constructor: ranks among which experts move share one copy.
  model::ContiguousExperts shared;
  if (options.movable_experts) shared = model::with_contiguous_experts(weights, thread);
  std::vector<model::ProcessedWeights> ranks;
  for (int64_t rank = 0; rank < options.all_ranks(); ++rank) {
    const model::Shard shard =
        model::shard_of(served, options.movable_experts ? shared.weights : weights, options, rank);
    ranks.emplace_back(shard.config, shard.weights, thread, has_screening(served, config));
  }
  return ranks;
}

}  // namespace

Result<LoadedWeights> load_weights(const std::filesystem::path& folder, const model::Config& served,
                                   const EngineConfig& config) {
  const auto file = folder / "config.json";
  const auto own  = model::read_config(file);
  if (!own) return own.error();
  if (const auto difference = model::first_difference(*own, served))
    return Error{fmt::format(
        "{}: {} of the served model: weights are replaced by those of a model with the same config; serve "
        "another model by a process of its own",
        file.string(), *difference)};
  auto tensors = model::Safetensors::open(folder, model::Safetensors::Load::copied);
  if (!tensors) return tensors.error();
  const auto weights = model::find_weights(*own, *tensors);
  if (!weights) return weights.error();
  LoadedWeights loaded{.tensors = {}, .ranks = processed(served, config, *weights)};
  for (const auto& [name, tensor] : tensors->tensors())
    loaded.bytes += static_cast<int64_t>(tensor.bytes.size());
  loaded.tensors = std::move(tensors).value();
  return loaded;
}

Status WeightUpdater::start(WeightUpdate update, Load load, Done done) {
  const std::lock_guard lock(mutex_);
  if (ending_) return Error{"the engine is stopping"};
  if (busy_) return Error{"another update of the weights is under way: try again when it has ended"};
  if (thread_.joinable()) thread_.join();  // it has nothing left to do
  busy_   = true;
  update_ = std::move(update);
  thread_ = std::thread([this, load = std::move(load), done = std::move(done)] { run(load, done); });
  return Ok{};
}

void WeightUpdater::run(const Load& load, const Done& done) {
  Status status = Ok{};
  try {
    status = load_and_wait(load);
  } catch (const std::bad_alloc&) {
    status =
        Error{fmt::format("{}: there is no memory for new weights beside the old ones: give the server "
                          "more, or restart it with --model {}",
                          update_.folder.string(), update_.folder.string())};
  } catch (const std::exception& error) {
    status = Error{fmt::format("{}: {}", update_.folder.string(), error.what())};
  }
  {
    const std::lock_guard lock(mutex_);
    busy_ = false;
  }
  done(status);
}

Status WeightUpdater::load_and_wait(const Load& load) {
  auto loaded = load();
  if (!loaded) return loaded.error();
  std::unique_lock lock(mutex_);
  swapped_.reset();
  loaded_ = &*loaded;
  lock.unlock();
  wake_();
  lock.lock();
  changed_.wait(lock, [&] { return swapped_ || ending_; });
  loaded_ = nullptr;
  return swapped_ ? *swapped_ : Error{"the engine ended before the new weights were in use"};
}

void WeightUpdater::swapped(const Status& status) {
  loaded_ = nullptr;
  {
    const std::lock_guard lock(mutex_);
    swapped_ = status;
  }
  changed_.notify_all();
}

void WeightUpdater::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace fathom::engine
