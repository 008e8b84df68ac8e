#include "profile/step_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fathom::profile {
namespace {

constexpr int64_t kBase = 1'764'000'000'000'000'000;  // some day in 2025

class Recorded {
 public:
  Recorded& kernel(const char* name, int64_t start, int64_t end) {
    lab::KernelRecord record{.name = name};
    record.start_ns = kBase + start;
    record.end_ns   = kBase + end;
    activity.kernels.push_back(record);
    return *this;
  }
  Recorded& copy(const char* name, int64_t start, int64_t end) {
    activity.copies.push_back({.name = name, .bytes = 4, .start_ns = kBase + start, .end_ns = kBase + end});
    return *this;
  }
  Activity activity;
};

const StepRow* row(const StepTable& table, const std::string& name) {
  for (const StepRow& one : table.rows)
    if (one.name == name) return &one;
  return nullptr;
}

double all_times(const StepTable& table) {
  double sum = table.gap_ns;
  for (const StepRow& one : table.rows) sum += one.time_ns;
  return sum;
}

TEST(StepTable, RowsAndGapsAddUpToTheStep) {
  Recorded seen;
  seen.copy("copy host to device", 10, 20).kernel("a", 25, 125).kernel("b", 125, 225).kernel("a", 230, 330);
  seen.copy("copy host to device", 430, 440)
      .kernel("a", 440, 540)
      .kernel("b", 540, 560)
      .kernel("a", 560, 590);
  const StepTable table = step_table(seen.activity, kBase, kBase + 600, 2);
  EXPECT_EQ(table.steps, 2);
  EXPECT_DOUBLE_EQ(table.step_ns, 300);
  ASSERT_EQ(table.rows.size(), 3U);
  EXPECT_EQ(table.rows[0].name, "a");
  EXPECT_DOUBLE_EQ(table.rows[0].launches, 2);
  EXPECT_DOUBLE_EQ(table.rows[0].time_ns, 165);
  EXPECT_DOUBLE_EQ(table.rows[0].share, 0.55);
  EXPECT_EQ(table.rows[1].name, "b");
  EXPECT_DOUBLE_EQ(table.rows[1].launches, 1);
  EXPECT_DOUBLE_EQ(table.rows[1].time_ns, 60);
  EXPECT_EQ(table.rows[2].name, "copy host to device");
  EXPECT_DOUBLE_EQ(table.gap_ns, (10 + 5 + 5 + 100 + 10) / 2.0);
  EXPECT_DOUBLE_EQ(all_times(table), table.step_ns);
}

// As under programmatic dependent launch: each kernel starts before the previous one ends.
TEST(StepTable, AKernelThatBeginsEarlyIsChargedFromTheEndOfTheOneBefore) {
  Recorded seen;
  seen.kernel("first", 0, 100).kernel("second", 40, 180).kernel("inside", 90, 150).kernel("third", 170, 200);
  const StepTable table = step_table(seen.activity, kBase, kBase + 200, 1);
  EXPECT_DOUBLE_EQ(row(table, "first")->time_ns, 100);
  EXPECT_DOUBLE_EQ(row(table, "second")->time_ns, 80);
  EXPECT_DOUBLE_EQ(row(table, "inside")->time_ns, 0);
  EXPECT_DOUBLE_EQ(row(table, "inside")->launches, 1);
  EXPECT_DOUBLE_EQ(row(table, "third")->time_ns, 20);
  EXPECT_DOUBLE_EQ(table.gap_ns, 0);
  EXPECT_DOUBLE_EQ(all_times(table), 200);
}

TEST(StepTable, LeavesOutWhatIsOutsideOrHasNoTimes) {
  Recorded seen;
  seen.kernel("before", 0, 100).kernel("in", 110, 150).kernel("after", 220, 230);
  seen.kernel("timeless", 0, 0);
  seen.activity.kernels.back().start_ns = seen.activity.kernels.back().end_ns = 0;
  const StepTable table = step_table(seen.activity, kBase + 100, kBase + 200, 1);
  ASSERT_EQ(table.rows.size(), 1U);
  EXPECT_EQ(table.rows[0].name, "in");
  EXPECT_DOUBLE_EQ(table.gap_ns, 60);
  EXPECT_TRUE(step_table(seen.activity, kBase, kBase + 100, 0).rows.empty());
  EXPECT_TRUE(step_table(seen.activity, kBase + 100, kBase + 100, 1).rows.empty());
}

// Prefill in two steps, the first without a token, and three decode steps.
Activity batch() {
  Recorded seen;
  seen.copy("copy host to device", 1000, 1100).kernel("prompt", 1100, 5000);
  seen.copy("copy host to device", 5000, 5100)
      .kernel("prompt", 5100, 9000)
      .copy("copy device to host", 9000, 9010);
  for (int64_t step = 0; step < 3; ++step) {
    const int64_t at = 9010 + step * 400;
    seen.copy("copy host to device", at, at + 20).kernel("decode", at + 20, at + 390);
    seen.copy("copy device to host", at + 390, at + 400);
  }
  return seen.activity;
}

TEST(BatchSteps, ArePartedWhereTokensCameToTheHost) {
  for (const int64_t late : {-150, 0, 150}) {
    SCOPED_TRACE(late);
    const BatchSteps steps = batch_steps(batch(), kBase + 400, kBase + 9010 + late, kBase + 10210 + late);
    EXPECT_EQ(steps.prefill.steps, 1);
    EXPECT_DOUBLE_EQ(steps.prefill.step_ns, 9010 - 400);
    EXPECT_DOUBLE_EQ(row(steps.prefill, "prompt")->launches, 2);
    EXPECT_DOUBLE_EQ(row(steps.prefill, "copy device to host")->launches, 1);
    EXPECT_EQ(row(steps.prefill, "decode"), nullptr);
    EXPECT_DOUBLE_EQ(steps.prefill.gap_ns, 600);
    EXPECT_EQ(steps.decode.steps, 3);
    EXPECT_DOUBLE_EQ(steps.decode.step_ns, 400);
    EXPECT_DOUBLE_EQ(row(steps.decode, "decode")->time_ns, 370);
    EXPECT_DOUBLE_EQ(row(steps.decode, "copy host to device")->launches, 1);
    EXPECT_EQ(row(steps.decode, "prompt"), nullptr);
  }
}

TEST(BatchSteps, WithoutDecodingOrWithoutRecordsAreEmpty) {
  const BatchSteps only_prefill = batch_steps(batch(), kBase + 400, kBase + 9020, kBase + 9020);
  EXPECT_EQ(only_prefill.prefill.steps, 1);
  EXPECT_EQ(only_prefill.decode.steps, 0);
  EXPECT_EQ(batch_steps({}, kBase, kBase + 1000, kBase + 2000).prefill.steps, 0);
}

TEST(StepTable, ReadsWithoutNamespacesAndInMicroseconds) {
  Recorded seen;
  seen.kernel("kernels::wgmma_gemm_kernel<kernels::TileShape<128>, kernels::Experts>", 0, 1500);
  seen.kernel(("kernels::" + std::string(100, 'k')).c_str(), 2000, 2500);
  const auto text = cells(step_table(seen.activity, kBase, kBase + 2500, 1));
  ASSERT_EQ(text.size(), 5U);
  EXPECT_EQ(text[0], (std::vector<std::string>{"kernel", "launches", "µs", "share"}));
  EXPECT_EQ(text[1],
            (std::vector<std::string>{"wgmma_gemm_kernel<TileShape<128>, Experts>", "1", "1.5", "60.0 %"}));
  EXPECT_EQ(text[2][0], std::string(59, 'k') + "…");
  EXPECT_EQ(text[3], (std::vector<std::string>{"nothing ran", "", "0.5", "20.0 %"}));
  EXPECT_EQ(text[4], (std::vector<std::string>{"the step", "2", "2.5", ""}));
  EXPECT_EQ(cells(StepTable{}).size(), 1U);
}

TEST(StepTable, IsJsonWithWholeNames) {
  Recorded seen;
  seen.kernel("kernels::linear_gemv_kernel", 0, 1500);
  const nlohmann::json json = to_json(step_table(seen.activity, kBase, kBase + 3000, 2));
  EXPECT_EQ(json.at("steps"), 2);
  EXPECT_EQ(json.at("step_ns"), 1500.0);
  EXPECT_EQ(json.at("gap_ns"), 750.0);
  EXPECT_EQ(json.at("kernels").at(0).at("name"), "kernels::linear_gemv_kernel");
  EXPECT_EQ(json.at("kernels").at(0).at("launches"), 0.5);
  EXPECT_EQ(json.at("kernels").at(0).at("time_ns"), 750.0);
  EXPECT_EQ(json.at("kernels").at(0).at("share_of_step"), 0.5);
}

const std::vector<DeclaredCost> kCosts = {
    {.kernel   = "gemm_kernel",
     .instance = "Swiglu",
     .launches = 2,
     .bytes    = 300e3,
     .flops    = 900e3,
     .expected = true},
    {.kernel = "gemm_kernel", .instance = "Linear", .launches = 1, .bytes = 50e3, .flops = 400e6},
    {.kernel = "norm_kernel", .instance = "", .launches = 1, .bytes = 10e3, .flops = 1e3}};

// 100 us: two instances of one op, another op that the tensor cores limit, and a kernel without a cost.
StepTable costed() {
  Recorded seen;
  seen.kernel("gemm_kernel<Shape<128>, SwigluEpilogue>", 0, 30'000);
  seen.kernel("gemm_kernel<Shape<16>, SwigluEpilogue>", 30'000, 60'000);
  seen.kernel("gemm_kernel<Shape<128>, LinearEpilogue>", 60'000, 80'000);
  seen.kernel("norm_kernel", 80'000, 90'000);
  seen.copy("copy device to host", 90'000, 95'000);
  StepTable table = step_table(seen.activity, kBase, kBase + 100'000, 1);
  add_costs(table, kCosts);
  return table;
}

TEST(StepCosts, GiveEachOpItsBytesItsRateAndItsShareOfTheLimit) {
  const StepTable table = costed();
  EXPECT_TRUE(table.notes.empty());
  ASSERT_EQ(table.rows.size(), 4U);
  EXPECT_DOUBLE_EQ(all_times(table), table.step_ns);
  EXPECT_DOUBLE_EQ(table.rows[0].launches, 2);
  EXPECT_DOUBLE_EQ(table.rows[0].time_ns, 60'000);

  const auto text = cells(table, {.read_bytes_per_s = 10e9, .flops_per_s = 40e12});
  EXPECT_EQ(text[0],
            (std::vector<std::string>{"kernel", "launches", "µs", "share", "MB", "rate", "of limit"}));
  // 300 kB in 60 us; the bytes are an expectation.
  EXPECT_EQ(text[1], (std::vector<std::string>{"gemm_kernel Swiglu", "2", "60.0", "60.0 %", "~0.3", "5 GB/s",
                                               "50.0 %"}));
  // 400 Mflop in 20 us are half of the limit; 2.5 GB/s are a quarter of theirs.
  EXPECT_EQ(text[2], (std::vector<std::string>{"gemm_kernel Linear", "1", "20.0", "20.0 %", "0.05",
                                               "20 TFLOP/s", "50.0 %"}));
  EXPECT_EQ(text[3],
            (std::vector<std::string>{"norm_kernel", "1", "10.0", "10.0 %", "0.01", "1 GB/s", "10.0 %"}));
  EXPECT_EQ(text[4], (std::vector<std::string>{"copy device to host", "1", "5.0", "5.00 %", "", "", ""}));
  EXPECT_EQ(text[6], (std::vector<std::string>{"the step", "5", "100.0", "", "~0.36", "3.6 GB/s", "36.0 %"}));
}

TEST(StepCosts, WithoutLimitsHaveARateAndNoShare) {
  const auto text = cells(costed());
  EXPECT_EQ(text[2][5], "2.5 GB/s");
  EXPECT_EQ(text[2][6], "");
}

TEST(StepCosts, AreNotGivenWhereLaunchesDiffer) {
  Recorded seen;
  seen.kernel("gemm_kernel<SwigluEpilogue>", 0, 30'000).kernel("norm_kernel", 30'000, 40'000);
  StepTable table = step_table(seen.activity, kBase, kBase + 50'000, 1);
  add_costs(table, kCosts);
  EXPECT_FALSE(row(table, "gemm_kernel<SwigluEpilogue>")->cost);
  EXPECT_TRUE(row(table, "norm_kernel")->cost);
  ASSERT_EQ(table.notes.size(), 2U);  // one launch of two, none of one
  EXPECT_EQ(table.notes[0],
            "gemm_kernel Swiglu: 1 launches a step were seen and 2 declared; no cost is shown");
}

TEST(StepCosts, AreInJsonAndNullWhereThereIsNone) {
  const nlohmann::json kernels = to_json(costed()).at("kernels");
  EXPECT_EQ(kernels.at(0).at("bytes"), 300e3);
  EXPECT_EQ(kernels.at(0).at("flops"), 900e3);
  EXPECT_EQ(kernels.at(0).at("bytes_expected"), true);
  EXPECT_EQ(kernels.at(2).at("bytes_expected"), false);
  EXPECT_TRUE(kernels.at(3).at("bytes").is_null());
}

}  // namespace
}  // namespace fathom::profile
