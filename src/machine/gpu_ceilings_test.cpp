#include "machine/gpu_ceilings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/expect.h"
#include "machine/gpu.h"
#include "machine/machine_id.h"

namespace fathom::machine {
namespace {

namespace fs = std::filesystem;

Measured gpu_value(double median) { return {median, median * 0.9, median * 1.1, median * 1.2, 12}; }

const GpuIdentity kGpu{.machine_id = "h200", .uuid = "GPU-1", .driver = "580.1"};

GpuCeilings gpu_example() {
  GpuCeilings c;
  c.machine_id    = kGpu.machine_id;
  c.name          = "NVIDIA H200";
  c.uuid          = kGpu.uuid;
  c.driver        = kGpu.driver;
  c.measured_at   = "2026-01-02T03:04:05Z";
  c.seconds       = 12;
  c.l2_bytes      = 60 << 20;
  c.clock_settled = true;
  const GpuSensors hot{.sm_clock_hz         = 1.4e9,
                       .memory_clock_hz     = 3.2e9,
                       .power_w             = 699,
                       .temperature_c       = 61,
                       .energy_j            = 1e6,
                       .clock_event_reasons = 0x4};
  c.bandwidths     = {{GpuLevel::shared, Traffic::read, 32 << 10, gpu_value(33e12), {}},
                      {GpuLevel::l2, Traffic::read, 16 << 20, gpu_value(8e12), {}},
                      {GpuLevel::l2, Traffic::copy, 16 << 20, gpu_value(6e12), {}},
                      {GpuLevel::dram, Traffic::read, int64_t{4} << 30, gpu_value(4e12), hot},
                      {GpuLevel::dram, Traffic::copy, int64_t{4} << 30, gpu_value(3e12), {}},
                      {GpuLevel::dram, Traffic::write, int64_t{4} << 30, gpu_value(3.5e12), {}}};
  c.peaks          = {{DType::fp32, GpuUnit::cuda_cores, gpu_value(60e12), {}},
                      {DType::fp32, GpuUnit::tensor_cores, gpu_value(400e12), {}},
                      {DType::bf16, GpuUnit::tensor_cores, gpu_value(700e12), hot},
                      {DType::bf16, GpuUnit::cublaslt, gpu_value(780e12), hot}};
  c.load_latencies = {{GpuLevel::l2, 8 << 20, gpu_value(270)}, {GpuLevel::dram, 1 << 30, gpu_value(800)}};
  c.launch_ns      = gpu_value(2000);
  c.launch_to_finish_ns = gpu_value(9000);
  c.graph_node_ns       = {};  // not measured
  c.links               = {{LinkDirection::to_gpu, true, 128 << 20, gpu_value(55e9)},
                           {LinkDirection::to_host, false, 128 << 20, gpu_value(9e9)}};
  c.peers               = {{.from             = 0,
                            .to               = 1,
                            .direct           = true,
                            .bytes_per_s      = gpu_value(390e9),
                            .both_bytes_per_s = gpu_value(700e9),
                            .copies           = {{4096, gpu_value(2500)}, {1 << 20, gpu_value(6000)}}},
                           {.from = 1, .to = 0, .direct = false, .bytes_per_s = gpu_value(20e9)}};
  c.not_measured        = {{"fp8 by cublaslt", "cuBLASLt is missing"}};
  return c;
}

TEST(GpuCeilingsJson, SurvivesTheRoundTrip) {
  for (const GpuCeilings& c : {GpuCeilings{}, gpu_example()}) {
    const Result<GpuCeilings> back = gpu_ceilings_from_json(nlohmann::json::parse(to_json(c).dump()));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(*back, c);
  }
}

TEST(GpuCeilingsJson, RefusesWhatNoMeasuringGives) {
  const nlohmann::json good = to_json(gpu_example());
  const auto refused = [](const nlohmann::json& json) { return !gpu_ceilings_from_json(json).has_value(); };
  EXPECT_FALSE(refused(good));
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused(nlohmann::json::array()));
  nlohmann::json bad = good;
  bad["schema"]      = "fathom.ceilings/1";  // the CPU's
  EXPECT_TRUE(refused(bad));
  bad                                         = good;
  bad["bandwidths"][0]["bytes_per_s"]["best"] = 0;
  EXPECT_TRUE(refused(bad));
  bad                     = good;
  bad["peaks"][0]["unit"] = "abacus";
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.erase("links");
  EXPECT_TRUE(refused(bad));
}

TEST(GpuRates, FallSmoothlyFromL2ToDram) {
  const GpuCeilings c = gpu_example();
  EXPECT_DOUBLE_EQ(gpu_best_rate(Traffic::read, 0, c), 9.6e12);
  EXPECT_DOUBLE_EQ(gpu_best_rate(Traffic::read, 60 << 20, c), 9.6e12);
  // Half in L2, half in DRAM: twice the bytes in the time of both.
  EXPECT_NEAR(gpu_best_rate(Traffic::read, 120 << 20, c), 2 / (1 / 9.6e12 + 1 / 4.8e12), 1);
  EXPECT_NEAR(gpu_median_rate(Traffic::read, int64_t{1} << 40, c), 4e12, 1e9);
  double last = 1e15;
  for (int64_t bytes = 1; bytes < int64_t{1} << 36; bytes = bytes * 5 / 4 + 1) {
    const double rate = gpu_best_rate(Traffic::copy, bytes, c);
    EXPECT_LE(rate, last * (1 + 1e-12));
    EXPECT_GE(rate, gpu_best_rate(GpuLevel::dram, Traffic::copy, c));
    last = rate;
  }
}

TEST(GpuRates, OfWhatIsKnown) {
  const GpuCeilings c = gpu_example();
  EXPECT_DOUBLE_EQ(gpu_best_rate(Traffic::write, 1 << 20, c), 4.2e12);  // L2 was not measured
  EXPECT_EQ(gpu_best_rate(Traffic::write_nontemporal, 1 << 20, c), gpu_best_rate(Traffic::write, 1 << 20, c));
  EXPECT_EQ(gpu_best_rate(Traffic::copy_nontemporal, 1 << 30, c), gpu_best_rate(Traffic::copy, 1 << 30, c));
  EXPECT_EQ(gpu_best_rate(Traffic::read, 1 << 20, GpuCeilings{}), 0);
  EXPECT_DOUBLE_EQ(gpu_median_rate(GpuLevel::shared, Traffic::read, c), 33e12);
  EXPECT_EQ(gpu_median_rate(GpuLevel::l1, Traffic::read, c), 0);
  EXPECT_DOUBLE_EQ(gpu_best_load_latency_ns(GpuLevel::l2, c), 270 * 1.2);
  EXPECT_EQ(gpu_median_load_latency_ns(GpuLevel::l1, c), 0);
  EXPECT_DOUBLE_EQ(gpu_median_link_rate(LinkDirection::to_gpu, true, c), 55e9);
  EXPECT_EQ(gpu_best_link_rate(LinkDirection::to_gpu, false, c), 0);
}

TEST(GpuRates, TensorCoresTakeTheBetterLoop) {
  const GpuCeilings c = gpu_example();
  EXPECT_DOUBLE_EQ(gpu_peak_flops(DType::bf16, true, c), 1.2 * 780e12);
  EXPECT_DOUBLE_EQ(gpu_median_flops(DType::fp32, true, c), 400e12);  // tf32
  EXPECT_DOUBLE_EQ(gpu_median_flops(DType::fp32, false, c), 60e12);
  EXPECT_EQ(gpu_peak_flops(DType::bf16, false, c), 0);
  EXPECT_EQ(gpu_peak_flops(DType::int8, true, c), 0);
}

TEST(GpuBests, AreKeptFromTheEarlierMeasuring) {
  GpuCeilings earlier = gpu_example(), fresh = gpu_example();
  earlier.bandwidths[3].bytes_per_s.best = 5e12;
  earlier.bandwidths[4].bytes_per_s.best = 1;  // the fresh one is better
  earlier.peaks[2].flops_per_s.best      = 1e15;
  earlier.load_latencies[0].ns.best      = 200;
  earlier.graph_node_ns                  = gpu_value(1300);
  earlier.links[0].bytes_per_s.best      = 70e9;
  earlier.peers[1].bytes_per_s.best      = 30e9;
  earlier.peers[0].both_bytes_per_s.best = 900e9;
  earlier.peers[0].copies[1].ns.best     = 5000;
  const GpuCeilings kept                 = with_bests_of(fresh, earlier);
  EXPECT_EQ(kept.bandwidths[3].bytes_per_s.best, 5e12);
  EXPECT_EQ(kept.bandwidths[3].bytes_per_s.median, fresh.bandwidths[3].bytes_per_s.median);
  EXPECT_EQ(kept.bandwidths[4].bytes_per_s.best, fresh.bandwidths[4].bytes_per_s.best);
  EXPECT_EQ(kept.peaks[2].flops_per_s.best, 1e15);
  EXPECT_EQ(kept.peaks[3].flops_per_s.best, fresh.peaks[3].flops_per_s.best);
  EXPECT_EQ(kept.load_latencies[0].ns.best, 200);  // of times, the lowest
  EXPECT_EQ(kept.graph_node_ns.best, gpu_value(1300).best);
  EXPECT_EQ(kept.links[0].bytes_per_s.best, 70e9);
  EXPECT_EQ(kept.peers[1].bytes_per_s.best, 30e9);
  EXPECT_EQ(kept.peers[0].both_bytes_per_s.best, 900e9);
  EXPECT_EQ(kept.peers[0].copies[1].ns.best, 5000);
  EXPECT_EQ(kept.peers[1].both_bytes_per_s, Measured{});
  EXPECT_EQ(with_bests_of(fresh, fresh), fresh);
}

class GpuCache : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "gpu-ceilings-XXXXXX";
    folder_          = mkdtemp(name.data());
    path_            = folder_ / "deep" / "gpu.json";
    measured_        = 0;
  }
  void TearDown() override { fs::remove_all(folder_); }

  static GpuCeilings measure() {
    ++measured_;
    return gpu_example();
  }
  GpuCeilings obtain(Refresh refresh) const { return obtain_gpu_ceilings(refresh, kGpu, path_, measure); }

  fs::path folder_, path_;
  inline static int measured_ = 0;
};

TEST_F(GpuCache, IsWrittenOnceAndReadAfter) {
  EXPECT_EQ(obtain(Refresh::if_missing), gpu_example());
  EXPECT_EQ(obtain(Refresh::if_missing), gpu_example());
  EXPECT_EQ(obtain(Refresh::never), gpu_example());
  EXPECT_EQ(measured_, 1);
  obtain(Refresh::always);
  EXPECT_EQ(measured_, 2);
}

TEST_F(GpuCache, NeverMeansNever) {
  EXPECT_THROW(obtain(Refresh::never), SystemError);
  EXPECT_EQ(measured_, 0);
}

TEST_F(GpuCache, OfAnotherGpuOrDriverIsNotUsed) {
  for (auto change : {+[](GpuCeilings& c) { c.uuid = "GPU-2"; }, +[](GpuCeilings& c) { c.driver = "590"; },
                      +[](GpuCeilings& c) { ++c.version; }}) {
    GpuCeilings other = gpu_example();
    other.bandwidths[0].bytes_per_s.best *= 100;
    change(other);
    write_gpu_ceilings(other, path_);
    testing::internal::CaptureStderr();
    EXPECT_EQ(obtain(Refresh::if_missing), gpu_example());
    EXPECT_NE(testing::internal::GetCapturedStderr().find("another GPU"), std::string::npos);
  }
}

TEST_F(GpuCache, CorruptOnesAreMeasuredAnew) {
  fs::create_directories(path_.parent_path());
  for (const char* text : {"", "{", "[1]"}) {
    std::ofstream(path_) << text;
    testing::internal::CaptureStderr();
    EXPECT_EQ(obtain(Refresh::if_missing), gpu_example());
    EXPECT_NE(testing::internal::GetCapturedStderr().find(path_.string()), std::string::npos);
    EXPECT_TRUE(read_gpu_ceilings(path_)) << "the cache is whole again";
  }
}

TEST_F(GpuCache, RefreshKeepsTheBest) {
  GpuCeilings earlier = gpu_example();
  earlier.peaks[2].flops_per_s.best *= 2;
  write_gpu_ceilings(earlier, path_);
  EXPECT_EQ(obtain(Refresh::always).peaks[2].flops_per_s.best, earlier.peaks[2].flops_per_s.best);
}

TEST(GpuCachePath, NamesTheGpuAndIsOneFile) {
  const GpuIdentity odd{.machine_id = "h200", .uuid = "GPU-1/../x", .driver = "CUDA 13.0"};
  const fs::path path = gpu_ceilings_path(odd);
  EXPECT_EQ(path.parent_path(), fs::path(ceilings_folder()));
  EXPECT_EQ(path.filename(), "h200-GPU-1-..-x-CUDA-13.0.json");
}

TEST(GpuCeilings, WithoutAGpuSayWhy) {
  if (gpu()) GTEST_SKIP() << "there is a GPU";
  try {
    gpu_ceilings();
    FAIL() << "ceilings of no GPU";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find(why_no_gpu()), std::string::npos) << error.what();
  }
  EXPECT_EQ(gpu_machine_id(), machine_id());
}

}  // namespace
}  // namespace fathom::machine
