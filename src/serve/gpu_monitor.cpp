#include "serve/gpu_monitor.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "core/result.h"

namespace fathom::serve {

struct GpuMonitor::State {
  explicit State(std::function<GpuReadings()> read) : read(std::move(read)) {}

  const std::function<GpuReadings()> read;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Answer> waiting;
  // The first reading, which opens NVML, begins with the monitor.
  bool reading                                = true;  // asked for or under way, or arrived and not yet taken
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  std::optional<GpuReadings> arrived;
  int64_t late = 0;
  bool ended   = false;
};

GpuMonitor::GpuMonitor(std::function<GpuReadings()> read, std::chrono::milliseconds patience)
    : patience_(patience), state_(std::make_shared<State>(std::move(read))) {
  // Detached, because nothing can end a call that hangs in the driver; the state lives as long as it does.
  std::thread([state = state_] {
    std::unique_lock lock(state->mutex);
    while (true) {
      state->changed.wait(lock, [&] { return state->ended || (state->reading && !state->arrived); });
      if (state->ended) return;
      lock.unlock();
      GpuReadings readings = state->read();
      lock.lock();
      state->arrived = std::move(readings);
      state->changed.notify_all();
    }
  }).detach();
  answering_ = std::thread([this] { answer_scrapes(); });
}

void GpuMonitor::end() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
  }
  state_->changed.notify_all();
  if (answering_.joinable()) answering_.join();
}

void GpuMonitor::scrape(Answer answer) {
  std::unique_lock lock(state_->mutex);
  if (state_->ended) {
    const int64_t late = state_->late;
    lock.unlock();
    return answer({.readings = {}, .late = late});
  }
  state_->waiting.push_back(std::move(answer));
  lock.unlock();
  state_->changed.notify_all();
}

void GpuMonitor::answer_scrapes() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  while (true) {
    state.changed.wait(lock, [&] { return state.ended || !state.waiting.empty(); });
    if (state.waiting.empty()) return;
    // A reading that is under way belongs to an earlier scrape; what waited too long for it waits no more.
    // One that came too late is out of date.
    if (!state.reading || state.arrived) {
      state.arrived.reset();
      state.reading = true;
      state.begun   = std::chrono::steady_clock::now();
      state.changed.notify_all();
    }
    state.changed.wait_until(lock, state.begun + patience_, [&] { return state.ended || state.arrived; });
    Scrape scrape;
    if (state.arrived) {
      scrape.readings = std::exchange(state.arrived, std::nullopt);
      state.reading   = false;
    } else if (!state.ended) {
      ++state.late;
    }
    scrape.late                       = state.late;
    const std::vector<Answer> waiting = std::exchange(state.waiting, {});
    lock.unlock();
    for (const Answer& answer : waiting) answer(scrape);
    lock.lock();
  }
}

namespace {

// One of the GPUs to read; without a handle NVML does not know it, or did not yet.
struct Watched {
  GpuReading identity;
  std::optional<machine::NvmlGpu> gpu;

  void identify(const machine::NvmlGpu& found) {
    gpu            = found;
    identity.uuid  = found.uuid();
    identity.name  = found.name();
    identity.index = found.index();
  }
};

GpuReading read_one(const Watched& watched) {
  GpuReading reading = watched.identity;
  if (!watched.gpu) return reading;
  reading.sensors  = watched.gpu->sensors();
  reading.memory   = watched.gpu->memory();
  reading.activity = watched.gpu->activity();
  reading.nvlink   = watched.gpu->nvlink_traffic();
  return reading;
}

}  // namespace

std::function<GpuReadings()> nvml_reader(std::optional<std::vector<std::string>> uuids) {
  std::vector<Watched> watched;
  if (uuids)
    for (const std::string& uuid : *uuids) watched.push_back({.identity = {.uuid = uuid}, .gpu = {}});
  return [all = !uuids, watched = std::move(watched)]() mutable {
    GpuReadings readings;
    if (all && watched.empty()) {
      if (const auto gpus = machine::nvml_gpus())
        for (const machine::NvmlGpu& gpu : *gpus) watched.emplace_back().identify(gpu);
      else
        readings.why_not = gpus.error().message;
    }
    for (Watched& one : watched) {
      if (!one.gpu) {
        if (const auto found = machine::nvml_gpu(one.identity.uuid))
          one.identify(*found);
        else
          readings.why_not = found.error().message;
      }
      readings.gpus.push_back(read_one(one));
    }
    return readings;
  };
}

}  // namespace fathom::serve
