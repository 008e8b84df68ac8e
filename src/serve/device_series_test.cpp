#include "serve/device_series.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>

namespace fathom::serve {
namespace {

// The lines of an export: what stands before the last space, and the value.
std::map<std::string, double> lines_of(const Exposition& exposition) {
  std::map<std::string, double> values;
  std::istringstream text(exposition.text());
  for (std::string line; std::getline(text, line);)
    if (!line.starts_with('#'))
      values[line.substr(0, line.rfind(' '))] = std::stod(line.substr(line.rfind(' ')));
  return values;
}

std::map<std::string, double> exported(const GpuMonitor::Scrape* gpus,
                                       const std::vector<machine::CpuEnergy>& cpus = {}) {
  Exposition exposition(Labels{{"engine", "0"}});
  add_device_series(gpus, cpus, exposition);
  return lines_of(exposition);
}

GpuReading whole_gpu() {
  return {.uuid     = "GPU-a",
          .name     = "NVIDIA H200",
          .index    = 3,
          .sensors  = {.sm_clock_hz         = 1.98e9,
                       .memory_clock_hz     = 3.201e9,
                       .power_w             = 512.5,
                       .temperature_c       = 61,
                       .energy_j            = 1234.5,
                       .clock_event_reasons = 0x4 | 0x40},
          .memory   = {{.total_bytes = int64_t{143} << 30,
                        .free_bytes  = int64_t{100} << 30,
                        .used_bytes  = int64_t{42} << 30}},
          .activity = {{.kernels = 0.87, .memory = 0.25}},
          .nvlink   = {{.sent_bytes = 4096, .received_bytes = 2048}}};
}

const std::string kGpuLabels = R"({engine="0",gpu="3",UUID="GPU-a",device="nvidia3",modelName="NVIDIA H200")";

TEST(DeviceSeries, AreTheDcgmExportersWithItsUnits) {
  const GpuMonitor::Scrape scrape{.readings = GpuReadings{.gpus = {whole_gpu()}}};
  const auto values                            = exported(&scrape);
  const std::map<std::string, double> expected = {{"DCGM_FI_DEV_GPU_UTIL", 87},
                                                  {"DCGM_FI_DEV_MEM_COPY_UTIL", 25},
                                                  {"DCGM_FI_DEV_FB_TOTAL", 143 * 1024},
                                                  {"DCGM_FI_DEV_FB_FREE", 100 * 1024},
                                                  {"DCGM_FI_DEV_FB_USED", 42 * 1024},
                                                  {"DCGM_FI_DEV_POWER_USAGE", 512.5},
                                                  {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1234500},
                                                  {"DCGM_FI_DEV_GPU_TEMP", 61},
                                                  {"DCGM_FI_DEV_SM_CLOCK", 1980},
                                                  {"DCGM_FI_DEV_MEM_CLOCK", 3201},
                                                  {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 0x44},
                                                  {"fathom_gpu_up", 1},
                                                  {"fathom_gpu_nvlink_sent_bytes_total", 4096},
                                                  {"fathom_gpu_nvlink_received_bytes_total", 2048}};
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(values.contains(name + kGpuLabels + "}")) << name;
    EXPECT_NEAR(values.at(name + kGpuLabels + "}"), value, 1e-9 * value) << name;
  }
  EXPECT_EQ(values.at(R"(fathom_energy_joules_total{engine="0",kind="gpu",device="GPU-a"})"), 1234.5);
  EXPECT_EQ(values.at(R"(fathom_gpu_scrapes_late_total{engine="0"})"), 0);
  int reasons = 0;
  for (const auto& [line, value] : values)
    if (line.starts_with("fathom_gpu_clock_event{")) {
      ++reasons;
      const bool now =
          line.find("SW power cap") != std::string::npos || line.find("HW thermal") != std::string::npos;
      EXPECT_EQ(value, now ? 1 : 0) << line;
    }
  EXPECT_EQ(reasons, 9);
}

TEST(DeviceSeries, WhatDoesNotAnswerIsAbsentAndNoZero) {
  GpuReading old = whole_gpu();
  old.sensors.energy_j.reset();
  old.sensors.clock_event_reasons.reset();
  old.nvlink.reset();
  const GpuMonitor::Scrape scrape{.readings = GpuReadings{.gpus = {old}}};
  for (const auto& [line, value] : exported(&scrape))
    for (const char* absent : {"ENERGY", "joules", "EVENT", "event", "nvlink"})
      EXPECT_EQ(line.find(absent), std::string::npos) << line << " " << value;
}

TEST(DeviceSeries, ALostGpuIsDownBesideOneThatIsUp) {
  GpuReading lost{.uuid = "GPU-b", .name = "NVIDIA H200", .index = 4};
  const GpuMonitor::Scrape scrape{.readings = GpuReadings{.gpus = {whole_gpu(), lost}}};
  const auto values = exported(&scrape);
  EXPECT_EQ(values.at("fathom_gpu_up" + kGpuLabels + "}"), 1);
  int of_lost = 0;
  for (const auto& [line, value] : values)
    if (line.find("GPU-b") != std::string::npos) {
      ++of_lost;
      EXPECT_TRUE(line.starts_with("fathom_gpu_up{")) << line;
      EXPECT_EQ(value, 0);
    }
  EXPECT_EQ(of_lost, 1);
}

TEST(DeviceSeries, AGpuThatNvmlDoesNotKnowHasNoNumber) {
  const GpuMonitor::Scrape scrape{.readings =
                                      GpuReadings{.gpus = {{.uuid = "GPU-c"}}, .why_not = "no driver"}};
  EXPECT_EQ(exported(&scrape).at(R"(fathom_gpu_up{engine="0",UUID="GPU-c"})"), 0);
}

TEST(DeviceSeries, ALateScrapeHasOnlyItsCount) {
  const GpuMonitor::Scrape scrape{.readings = {}, .late = 7};
  const auto values = exported(&scrape, {{.zone = "package-0", .joules = 2}});
  EXPECT_EQ(values, (std::map<std::string, double>{
                        {R"(fathom_gpu_scrapes_late_total{engine="0"})", 7},
                        {R"(fathom_energy_joules_total{engine="0",kind="cpu",device="package-0"})", 2}}));
}

TEST(DeviceSeries, CpusNeedNoGpu) {
  EXPECT_TRUE(exported(nullptr).empty());
  const auto values = exported(nullptr, {{.zone = "package-0", .joules = 1.5},
                                         {.zone = "package-0/dram", .memory = true, .joules = 0.25}});
  EXPECT_EQ(values.size(), 2u);
  EXPECT_EQ(values.at(R"(fathom_energy_joules_total{engine="0",kind="cpu",device="package-0"})"), 1.5);
  EXPECT_EQ(values.at(R"(fathom_energy_joules_total{engine="0",kind="dram",device="package-0/dram"})"), 0.25);
}

TEST(DeviceSeries, AnEnergyCounterKeepsItsMillijoules) {
  GpuReading gpu       = whole_gpu();
  gpu.sensors.energy_j = 123'456'789'012.345;  // 20 years at 200 W
  const GpuMonitor::Scrape scrape{.readings = GpuReadings{.gpus = {gpu}}};
  EXPECT_DOUBLE_EQ(exported(&scrape).at("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" + kGpuLabels + "}"),
                   123'456'789'012'345);
}

}  // namespace
}  // namespace fathom::serve
