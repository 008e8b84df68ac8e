// Reads the sensors of GPUs for GET /metrics on a thread of its own. Reading takes milliseconds, and a driver
// may hang: neither the HTTP threads, which also carry streams, nor the other series wait for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "machine/nvml.h"

namespace fathom::serve {

// One GPU at one moment. What it did not tell is absent.
struct GpuReading {
  std::string uuid, name;
  std::optional<int> index;  // nvidia-smi's number
  machine::GpuSensors sensors;
  std::optional<machine::GpuMemory> memory;
  std::optional<machine::GpuActivity> activity;
  std::optional<machine::NvlinkTraffic> nvlink;

  // It answers. A GPU that is lost (fallen off the bus) does not.
  bool up() const { return memory || activity || sensors.power_w || sensors.temperature_c; }
};

struct GpuReadings {
  std::vector<GpuReading> gpus;
  std::string why_not;  // NVML does not work; empty: it does
};

class GpuMonitor {
 public:
  struct Scrape {
    std::optional<GpuReadings> readings;  // none: they did not come in time
    int64_t late = 0;                     // scrapes without readings so far
  };
  using Answer = std::function<void(const Scrape&)>;

  // `read` is called on one thread, once for each scrape or for several at once. It may take for ever, even
  // beyond the monitor's life, so it must own what it uses. `patience` is the longest that a scrape waits.
  explicit GpuMonitor(std::function<GpuReadings()> read,
                      std::chrono::milliseconds patience = std::chrono::milliseconds(500));
  ~GpuMonitor() { end(); }
  GpuMonitor(const GpuMonitor&)            = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  // Returns at once, and calls `answer` once, from another thread, after at most `patience`. While a reading
  // is late, scrapes are answered without one and do not wait. `answer` must not block.
  void scrape(Answer answer);

  // Answers those who wait, without readings, and leaves a `read` that hangs behind. From now on no answer
  // comes from another thread: `scrape` calls it at once.
  void end();

 private:
  struct State;
  void answer_scrapes();

  const std::chrono::milliseconds patience_;
  const std::shared_ptr<State> state_;  // shared with the thread that reads
  std::thread answering_;
};

// Reads GPUs by NVML: those of these UUIDs, as machine/gpu.h writes them; none: every GPU of the driver.
// Identity is asked for once. For GpuMonitor, whose thread NVML may block.
std::function<GpuReadings()> nvml_reader(std::optional<std::vector<std::string>> uuids);

}  // namespace fathom::serve
