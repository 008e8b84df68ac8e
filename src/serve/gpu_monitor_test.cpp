#include "serve/gpu_monitor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace fathom::serve {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Answers of a monitor, collected.
class Scraped {
 public:
  void ask(GpuMonitor& monitor) {
    monitor.scrape([this](const GpuMonitor::Scrape& scrape) {
      const std::lock_guard lock(mutex_);
      scrapes_.push_back(scrape);
      changed_.notify_all();
    });
  }
  GpuMonitor::Scrape wait_for(size_t number) {  // the number-th, counted from 1
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return scrapes_.size() >= number; }));
    return scrapes_.at(number - 1);
  }
  size_t answered() {
    const std::lock_guard lock(mutex_);
    return scrapes_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<GpuMonitor::Scrape> scrapes_;
};

// What `read` hangs on. Shared, since a hanging read outlives its monitor.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = true;
  int reads = 0, hanging = 0;

  void pass() {
    std::unique_lock lock(mutex);
    ++reads;
    ++hanging;
    changed.notify_all();
    changed.wait(lock, [&] { return open; });
    --hanging;
  }
  void set(bool value) {
    const std::lock_guard lock(mutex);
    open = value;
    changed.notify_all();
  }
  void wait_until_reading() {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return hanging > 0; }));
  }
};

std::function<GpuReadings()> reader_through(std::shared_ptr<Gate> gate) {
  return [gate] {
    gate->pass();
    GpuReadings readings;
    readings.gpus.push_back({.uuid = "GPU-1", .sensors = {.power_w = 100. + gate->reads}});
    return readings;
  };
}

double watts(const GpuMonitor::Scrape& scrape) { return *scrape.readings->gpus.at(0).sensors.power_w; }

TEST(GpuMonitor, ReadsAnewForEachScrape) {
  auto gate = std::make_shared<Gate>();
  GpuMonitor monitor(reader_through(gate), milliseconds(60'000));
  Scraped scraped;
  double before = 0;
  for (size_t i = 1; i <= 5; ++i) {
    scraped.ask(monitor);
    const auto scrape = scraped.wait_for(i);
    ASSERT_TRUE(scrape.readings);
    EXPECT_GT(watts(scrape), before);
    before = watts(scrape);
    EXPECT_EQ(scrape.late, 0);
  }
}

TEST(GpuMonitor, OneReadingAnswersAllWhoWait) {
  auto gate  = std::make_shared<Gate>();
  gate->open = false;
  GpuMonitor monitor(reader_through(gate), milliseconds(60'000));
  gate->wait_until_reading();
  Scraped scraped;
  for (int i = 0; i < 100; ++i) scraped.ask(monitor);
  EXPECT_EQ(scraped.answered(), 0u);
  gate->set(true);
  for (size_t i = 1; i <= 100; ++i) EXPECT_TRUE(scraped.wait_for(i).readings);
  EXPECT_LE(gate->reads, 100);
}

TEST(GpuMonitor, AScrapeDoesNotWaitForAHangingReading) {
  auto gate  = std::make_shared<Gate>();
  gate->open = false;
  GpuMonitor monitor(reader_through(gate), milliseconds(50));
  gate->wait_until_reading();
  Scraped scraped;
  auto begun = steady_clock::now();
  scraped.ask(monitor);
  EXPECT_FALSE(scraped.wait_for(1).readings);
  EXPECT_LT(steady_clock::now() - begun, std::chrono::seconds(10));
  EXPECT_EQ(scraped.wait_for(1).late, 1);
  // Later ones do not wait at all, and start no further thread or reading.
  begun = steady_clock::now();
  for (size_t i = 2; i <= 200; ++i) {
    scraped.ask(monitor);
    EXPECT_FALSE(scraped.wait_for(i).readings);
  }
  EXPECT_LT(steady_clock::now() - begun, 199 * milliseconds(50) / 2);
  EXPECT_EQ(gate->reads, 1);

  gate->set(true);  // the driver came back: what it says is of that moment, not of the first scrape
  size_t asked = 200;
  do {
    scraped.ask(monitor);
  } while (!scraped.wait_for(++asked).readings && asked < 100'000);
  EXPECT_TRUE(scraped.wait_for(asked).readings);
  EXPECT_GE(watts(scraped.wait_for(asked)), 101);
  EXPECT_GE(scraped.wait_for(asked).late, 200);
}

TEST(GpuMonitor, TakesNoReadingFromBeforeTheScrape) {
  auto gate = std::make_shared<Gate>();
  GpuMonitor monitor(reader_through(gate), milliseconds(60'000));
  while (true) {  // until the first reading, which nobody asked for, is done
    const std::lock_guard lock(gate->mutex);
    if (gate->reads == 1 && gate->hanging == 0) break;
  }
  std::this_thread::sleep_for(milliseconds(50));
  Scraped scraped;
  scraped.ask(monitor);
  EXPECT_EQ(watts(scraped.wait_for(1)), 102);
}

TEST(GpuMonitor, EndsWhileAReadingHangs) {
  auto gate  = std::make_shared<Gate>();
  gate->open = false;
  Scraped scraped;
  const auto begun = steady_clock::now();
  {
    GpuMonitor monitor(reader_through(gate), milliseconds(600'000));
    gate->wait_until_reading();
    for (int i = 0; i < 3; ++i) scraped.ask(monitor);
  }
  EXPECT_LT(steady_clock::now() - begun, std::chrono::seconds(60));
  ASSERT_EQ(scraped.answered(), 3u);  // nobody is left without an answer
  EXPECT_FALSE(scraped.wait_for(3).readings);
  EXPECT_EQ(scraped.wait_for(3).late, 0);
  gate->set(true);  // what was left behind ends too
}

TEST(GpuMonitor, AfterItsEndAScrapeIsAnsweredByItsCaller) {
  auto gate = std::make_shared<Gate>();
  GpuMonitor monitor(reader_through(gate), milliseconds(60'000));
  Scraped scraped;
  scraped.ask(monitor);
  EXPECT_TRUE(scraped.wait_for(1).readings);
  monitor.end();
  std::thread::id answering;
  monitor.scrape([&](const GpuMonitor::Scrape& scrape) {
    answering = std::this_thread::get_id();
    EXPECT_FALSE(scrape.readings);
  });
  EXPECT_EQ(answering, std::this_thread::get_id());
  monitor.end();
}

TEST(GpuMonitor, ManyScrapeAtOnce) {
  auto gate = std::make_shared<Gate>();
  GpuMonitor monitor(reader_through(gate), milliseconds(60'000));
  Scraped scraped;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&] {
      for (int i = 0; i < 250; ++i) scraped.ask(monitor);
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 1; i <= 1000; ++i) EXPECT_TRUE(scraped.wait_for(i).readings);
}

}  // namespace
}  // namespace fathom::serve
