#include "profile/api_summary.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "profile/timeline.h"

namespace fathom::profile {
namespace {

using nlohmann::json;

// Two decode steps of which the second instantiates its graph anew, and a copy outside of both.
Activity two_steps() {
  Activity activity;
  activity.end_ns = 100'000;
  activity.ranges = {
      {"decode", 1'000, 20'000, 42}, {"wait", 15'000, 19'000, 42}, {"decode", 30'000, 90'000, 42}};
  activity.host_calls = {{"cudaGraphLaunch", false, 2'000, 5'000, 42, 1},
                         {"cudaStreamSynchronize", false, 16'000, 18'000, 42, 2},
                         {"cudaGraphInstantiate", false, 31'000, 71'000, 42, 3},
                         {"cudaGraphLaunch", false, 72'000, 74'000, 42, 4},
                         {"cudaMemcpyAsync", false, 92'000, 93'000, 42, 5},
                         {"cudaMalloc", false, 40'000, 45'000, 43, 6}};  // another thread: in no range
  lab::KernelRecord kernel{.name = "gemm"};
  kernel.start_ns    = 6'000;
  kernel.end_ns      = 10'000;
  kernel.correlation = 1;
  activity.kernels.push_back(kernel);
  kernel.start_ns    = 76'000;
  kernel.end_ns      = 82'000;
  kernel.correlation = 4;
  activity.kernels.push_back(kernel);
  activity.copies = {{"copy host to device", 64, 94'000, 95'000, 0, 7, 5}};
  return activity;
}

ApiSummary summary_of(const Activity& activity) {
  return *api_summary(json::parse(timeline(activity, "bench n=1").json()));
}

std::vector<std::tuple<std::string, std::string, int64_t, double>> facts(
    const std::vector<SummaryRow>& rows) {
  std::vector<std::tuple<std::string, std::string, int64_t, double>> all;
  for (const SummaryRow& row : rows) all.push_back({row.range, row.name, row.calls, row.total_ns});
  return all;
}

using Rows = std::vector<std::tuple<std::string, std::string, int64_t, double>>;

TEST(ApiSummary, SumsCallsByRangeAndTime) {
  const ApiSummary summary = summary_of(two_steps());
  // Ranges in the order their first call came, then by time; what is outside of all bears the call's title.
  EXPECT_EQ(facts(summary.api), (Rows{{"decode", "cudaGraphInstantiate", 1, 40'000},
                                      {"decode", "cudaGraphLaunch", 2, 5'000},
                                      {"decode > wait", "cudaStreamSynchronize", 1, 2'000},
                                      {"bench n=1", "cudaMalloc", 1, 5'000},
                                      {"bench n=1", "cudaMemcpyAsync", 1, 1'000}}));
  EXPECT_NEAR(summary.api[0].share, 40.0 / 53, 1e-12);
  EXPECT_EQ(summary.api[0].kind, "graph build");
  EXPECT_DOUBLE_EQ(summary.api[1].median_ns, 2'500);
  EXPECT_DOUBLE_EQ(summary.api[1].min_ns, 2'000);
  EXPECT_DOUBLE_EQ(summary.api[1].max_ns, 3'000);
  // A kernel is in the range of its launch, wherever it ran.
  EXPECT_EQ(facts(summary.kernels), (Rows{{"decode", "gemm", 2, 10'000}}));
  EXPECT_EQ(facts(summary.copies), (Rows{{"bench n=1", "copy host to device", 1, 1'000}}));
  EXPECT_TRUE(summary.notes.empty());
  // Instantiating and allocating are 45 of 53 us.
  EXPECT_NEAR(to_json(summary).at("set_up_share").get<double>(), 45.0 / 53, 1e-12);
  const std::string page = to_markdown(summary);
  EXPECT_NE(page.find("| `decode` | cudaGraphInstantiate | 75.5 % | 40.0 µs | 1 |"), std::string::npos)
      << page;
  EXPECT_NE(page.find("84.9 % of the time in API calls is loading"), std::string::npos) << page;
}

TEST(ApiSummary, WithoutRangesTheRangeIsTheCall) {
  Activity activity = two_steps();
  activity.ranges.clear();
  const ApiSummary summary = summary_of(activity);
  for (const SummaryRow& row : summary.api) EXPECT_EQ(row.range, "bench n=1");
  EXPECT_EQ(cells(summary.api, "API call").front().front(), "API call") << "no column of ranges";
}

TEST(ApiSummary, OfNothingSaysSo) {
  const ApiSummary summary = summary_of(Activity{});
  EXPECT_TRUE(summary.api.empty() && summary.kernels.empty() && summary.copies.empty());
  EXPECT_EQ(summary.notes, std::vector<std::string>{"the trace has no API calls of CUDA"});
  EXPECT_TRUE(api_summary(json::array())) << "the format without its object";
}

// PyTorch's profiler: categories, text for processes, correlation in the arguments.
TEST(ApiSummary, ReadsTracesOfPyTorch) {
  const auto event = [](const char* category, const char* name, const json& process, double start,
                        double duration, json arguments = json::object()) {
    return json{{"ph", "X"}, {"cat", category}, {"name", name},    {"pid", process},
                {"tid", 7},  {"ts", start},     {"dur", duration}, {"args", std::move(arguments)}};
  };
  const json trace{
      {"schemaVersion", 1},
      {"traceEvents",
       {event("user_annotation", "ProfilerStep#3", 100, 0, 50), event("cpu_op", "aten::mm", 100, 1, 9),
        event("cuda_runtime", "cudaLaunchKernel", 100, 2, 3, {{"correlation", 9}}),
        event("kernel", "gemm", 0, 20, 10, {{"correlation", 9}, {"grid", {1, 1, 1}}}),
        event("gpu_memcpy", "Memcpy HtoD", 0, 32, 4, {{"correlation", 10}})}}};
  const auto summary = api_summary(trace);
  ASSERT_TRUE(summary) << summary.error().message;
  EXPECT_EQ(facts(summary->api), (Rows{{"ProfilerStep#3", "cudaLaunchKernel", 1, 3'000}}));
  EXPECT_EQ(facts(summary->kernels), (Rows{{"ProfilerStep#3", "gemm", 1, 10'000}}));
  EXPECT_EQ(facts(summary->copies), (Rows{{"", "Memcpy HtoD", 1, 4'000}}));
  ASSERT_EQ(summary->notes.size(), 1U);
  EXPECT_NE(summary->notes[0].find("1 kernels and copies have no launch"), std::string::npos);
}

TEST(ApiSummary, KnowsWhatAStepShouldNotDo) {
  for (const auto& [call, kind] :
       std::vector<std::pair<const char*, const char*>>{{"cuLibraryLoadData", "module load"},
                                                        {"cuModuleGetFunction", "module load"},
                                                        {"cudaGraphInstantiate", "graph build"},
                                                        {"cudaGraphExecUpdate", "graph build"},
                                                        {"cudaMalloc", "allocation"},
                                                        {"cudaFreeAsync", "allocation"},
                                                        {"cudaGraphLaunch", "launch"},
                                                        {"cuLaunchKernelEx", "launch"},
                                                        {"cudaMemcpyAsync", "copy"},
                                                        {"cudaEventSynchronize", "synchronisation"},
                                                        {"cudaGetDevice", "other"}})
    EXPECT_EQ(kind_of_call(call), kind) << call;
  EXPECT_TRUE(is_set_up("graph build"));
  EXPECT_FALSE(is_set_up("launch"));
}

TEST(ApiSummary, NamesWhatIsBroken) {
  EXPECT_NE(api_summary(json{{"a", 1}}).error().message.find("no traceEvents"), std::string::npos);
  EXPECT_NE(api_summary(json(7)).error().message.find("no array"), std::string::npos);
  EXPECT_NE(api_summary(json::parse(R"([{"ph": "X", "name": "a"}])")).error().message.find("not as Chrome's"),
            std::string::npos);
  EXPECT_NE(read_api_summary("/nowhere/trace.json").error().message.find("cannot read"), std::string::npos);
  const auto path =
      std::filesystem::temp_directory_path() / ("fathom_broken_trace_" + std::to_string(getpid()));
  std::ofstream(path) << "{";
  EXPECT_NE(read_api_summary(path).error().message.find("is not JSON"), std::string::npos);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace fathom::profile
