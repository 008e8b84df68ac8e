// `fathom bench serve` and `fathom bench throughput`, from flags to result files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/bench_flags.h"
#include "cli/usage_error.h"
#include "engine/fake_generator.h"
#include "http/scripted_server.h"

namespace fathom::cli {
namespace {

using http::ScriptedServer;
using nlohmann::json;

constexpr std::string_view kDone = "data: [DONE]\n\n";

// Answers like an OpenAI server. With `pace`, requests are served one at a time and each takes that long.
class ApiServer {
 public:
  explicit ApiServer(std::chrono::milliseconds pace = {})
      : pace_(pace), server_([this](const auto& e) { return answer(e); }) {}
  std::string port() const { return std::to_string(server_.port()); }

  std::atomic<int> reject{0};  // rejects this many of the next requests
  std::mutex mutex;
  std::vector<json> bodies;

 private:
  bool answer(const ScriptedServer::Exchange& e) {
    const auto plain = [&](const char* status, const std::string& body) {
      return e.send(std::string("HTTP/1.1 ") + status + "\r\nContent-Length: " + std::to_string(body.size()) +
                    "\r\n\r\n" + body);
    };
    if (e.head.starts_with("GET /v1/models ")) return plain("200 OK", R"({"data":[{"id":"acme/tiny"}]})");
    if (reject > 0 && reject-- > 0) return plain("429 Too Many Requests", R"({"error":{"message":"full"}})");
    const json body = json::parse(e.body);
    {
      const std::lock_guard lock(mutex);
      bodies.push_back(body);
      if (pace_.count() > 0) std::this_thread::sleep_for(pace_);
    }
    const bool chat   = e.head.starts_with("POST /v1/chat/completions ");
    const auto tokens = body[chat ? "max_completion_tokens" : "max_tokens"].get<int>();
    std::string stream(http::kStreamHead);
    for (int i = 0; i < tokens; ++i) {
      json choice{{"index", 0}, {"finish_reason", i + 1 == tokens ? json("length") : json()}};
      chat ? choice["delta"] = {{"content", "x"}} : choice["text"] = "x";
      stream += http::chunk("data: " + json{{"choices", {choice}}}.dump() + "\n\n");
    }
    const json usage{{"choices", json::array()},
                     {"usage", {{"prompt_tokens", 7}, {"completion_tokens", tokens}}}};
    stream += http::chunk("data: " + usage.dump() + "\n\n" + std::string(kDone));
    return e.send(stream + std::string(http::kStreamEnd));
  }

  std::chrono::milliseconds pace_;
  ScriptedServer server_;
};

class BenchLoad : public testing::Test {
 protected:
  BenchLoad()
      : folder_(std::filesystem::path(testing::TempDir()) / ("bench_load_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~BenchLoad() override { std::filesystem::remove_all(folder_); }

  int bench(const std::string& words, const EngineFactory& factory = nullptr) {
    CLI::App app;
    int code = -1;
    add_bench_serve(app, code);
    add_bench_throughput(app, code, factory);
    testing::internal::CaptureStdout();
    try {
      app.parse(words);
    } catch (...) {
      out_ = testing::internal::GetCapturedStdout();
      throw;
    }
    out_ = testing::internal::GetCapturedStdout();
    return code;
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::string text(const char* name) const {
    std::stringstream all;
    all << std::ifstream(folder_ / name).rdbuf();
    return all.str();
  }

  std::filesystem::path folder_;
  std::string out_;
};

TEST_F(BenchLoad, OneRunPrintsAndSavesWhatVllmDoes) {
  ApiServer server;
  ASSERT_EQ(
      bench(
          "serve --port " + server.port() +
          " --num-prompts 12 --request-rate 500 --random-input-len 20 --random-output-len 5 --num-warmups 2 "
          "--goodput e2el:60000 --metric-percentiles 50,99 --save-result --save-detailed --result-dir " +
          folder_.string() + " --result-filename r.json --report " + path("page.html")),
      0);
  EXPECT_NE(out_.find("Successful requests:                     12 "), std::string::npos) << out_;
  EXPECT_NE(out_.find("Total generated tokens:                  60 "), std::string::npos) << out_;
  EXPECT_NE(out_.find("Request goodput (req/s):"), std::string::npos);
  EXPECT_NE(out_.find("P50 ITL (ms):"), std::string::npos);
  const json result = json::parse(text("r.json"));
  EXPECT_EQ(result["model_id"], "acme/tiny");
  EXPECT_EQ(result["completed"], 12);
  EXPECT_EQ(result["total_input_tokens"], 84);  // as the server counts
  EXPECT_EQ(result["itls"].size(), 12u);
  EXPECT_EQ(result["itls"][0].size(), 4u);
  EXPECT_GT(result["p99_ttft_ms"], 0);
  EXPECT_NE(text("page.html").find("acme/tiny"), std::string::npos);

  ASSERT_EQ(server.bodies.size(), 1u + 2 + 12);  // a test request and the warm-ups come first
  std::set<std::string> prompts;
  for (const json& body : server.bodies) {
    EXPECT_EQ(body["prompt"].size(), 20u);
    EXPECT_EQ(body["max_tokens"], 5);
    EXPECT_EQ(body["ignore_eos"], true);
    prompts.insert(body["prompt"].dump());
  }
  EXPECT_EQ(prompts.size(), 15u) << "a prompt that came before may lie in the server's cache";
}

TEST_F(BenchLoad, FailuresAreCountedAndAnUnreachableServerIsSaid) {
  ApiServer server;
  server.reject = 0;
  EXPECT_THROW(bench("serve --port 1 --num-prompts 1"), UsageError);
  server.reject = 1;
  try {
    bench("serve --port " + server.port() + " --num-prompts 3");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("HTTP 429: full"), std::string::npos) << error.what();
  }
}

TEST_F(BenchLoad, ChatNeedsTextAndSendsMessages) {
  ApiServer server;
  EXPECT_THROW(bench("serve --backend openai-chat --port " + server.port()), UsageError);
  std::ofstream(path("asked.jsonl"))
      << "{\"prompt\": \"Hello\", \"output_tokens\": 2}\n{\"prompt\": \"Bye\"}\n";
  ASSERT_EQ(bench("serve --backend openai-chat --dataset-name custom --dataset-path " + path("asked.jsonl") +
                  " --output-len 4 --max-concurrency 1 --port " + server.port()),
            0);
  ASSERT_EQ(server.bodies.size(), 3u);
  EXPECT_EQ(server.bodies[2]["messages"][0]["content"], "Bye");
  EXPECT_EQ(server.bodies[1]["max_completion_tokens"], 2);
  EXPECT_EQ(server.bodies[2]["max_completion_tokens"], 4);
  EXPECT_FALSE(server.bodies[2].contains("ignore_eos"));
  EXPECT_NE(out_.find("Mean Client Queue Time (ms):"), std::string::npos);
}

TEST_F(BenchLoad, ATraceKeepsItsTimes) {
  ApiServer server;
  std::ofstream(path("trace.jsonl")) << "{\"timestamp\": 5000, \"input_length\": 3, \"output_length\": 1}\n"
                                        "{\"timestamp\": 5200, \"input_length\": 4, \"output_length\": 1}\n";
  ASSERT_EQ(bench("serve --dataset-name trace --dataset-path " + path("trace.jsonl") + " --port " +
                  server.port() + " --save-detailed --result-filename " + path("r.json")),
            0);
  const json result = json::parse(text("r.json"));
  EXPECT_GE(result["start_times"][1], 0.2);
  EXPECT_GE(result["duration"], 0.2);
}

TEST_F(BenchLoad, ASweepFindsSaturationAndHoldsEveryPoint) {
  ApiServer server(std::chrono::milliseconds(4));
  ASSERT_EQ(
      bench("serve --port " + server.port() +
            " --num-prompts 10 --random-input-len 8 --random-output-len 2 --sweep 0.5,1.5 --sweep-window 0.2 "
            "--heatmap 16,4 --heatmap-prompts 3 --save-result --result-filename " +
            path("r.json") + " --report " + path("page.html")),
      0);
  const json result = json::parse(text("r.json"));
  EXPECT_GT(result["saturation"], 0);
  ASSERT_EQ(result["points"].size(), 2u);
  for (const auto& [at, relative] : {std::pair{0, 0.5}, {1, 1.5}}) {
    EXPECT_EQ(result["points"][at]["of_saturation"], relative);
    EXPECT_DOUBLE_EQ(result["points"][at]["request_rate"].get<double>(),
                     relative * result["saturation"].get<double>());
    EXPECT_EQ(result["points"][at]["completed"], 10);
  }
  for (const json& trial : result["trials"])
    EXPECT_EQ(trial["completed_over_offered"] >= 0.95, trial["request_rate"] <= result["saturation"])
        << trial;
  EXPECT_EQ(result["lengths"][0]["input_len"], 4);
  EXPECT_EQ(result["lengths"][1]["completed"], 3);
  const std::string page = text("page.html");
  EXPECT_NE(page.find("Against load"), std::string::npos);
  EXPECT_NE(page.find("Against context length"), std::string::npos);
}

TEST_F(BenchLoad, FlagsThatContradictAreSaid) {
  ApiServer server;
  const std::string at = "serve --port " + server.port() + " ";
  for (const char* flags : {"--goodput itl:3", "--metric-percentiles 101", "--percentile-metrics x",
                            "--dataset-name trace", "--dataset-path x.jsonl", "--ramp-up-strategy linear",
                            "--endpoint v1/completions", "--tokenizer /nowhere", "--base-url ftp://a",
                            "--ramp-up-strategy linear --ramp-up-start-rps 1 --ramp-up-end-rps 2 --sweep 1"})
    EXPECT_THROW(bench(at + flags), UsageError) << flags;
  for (const char* flags :
       {"--request-rate 0", "--burstiness -1", "--num-prompts 0", "--sweep 0", "--heatmap 0"})
    EXPECT_THROW(bench(at + flags), CLI::ParseError) << flags;
  EXPECT_TRUE(server.bodies.empty());
}

// vLLM's own spelling of its default.
TEST_F(BenchLoad, AnInfiniteRateSendsAllAtOnce) {
  ApiServer server;
  ASSERT_EQ(bench("serve --port " + server.port() +
                  " --num-prompts 5 --random-input-len 3 --random-output-len 2 --request-rate inf "
                  "--burstiness inf"),
            0);
  EXPECT_EQ(server.bodies.size(), 1u + 5);  // a test request comes first
}

TEST_F(BenchLoad, ThroughputCountsWhatTheEngineMade) {
  engine::EngineConfig seen;
  const auto factory = [&](const std::string&, const engine::EngineConfig& config) {
    seen = config;
    return std::make_unique<engine::FakeGenerator>();
  };
  ASSERT_EQ(bench("throughput --model " + folder_.string() +
                      " --num-prompts 30 --random-input-len 10 --random-output-len 7 --output-json " +
                      path("t.json") + " --step-log " + path("steps.json"),
                  factory),
            0);
  const json result = json::parse(text("t.json"));
  EXPECT_EQ(result["num_requests"], 30);
  EXPECT_EQ(result["total_num_tokens"], 30 * 17);
  EXPECT_DOUBLE_EQ(result["requests_per_second"].get<double>() * result["elapsed_time"].get<double>(), 30);
  EXPECT_NE(out_.find("Total num output tokens:  210\n"), std::string::npos) << out_;
  EXPECT_GT(result["p50_ttft_ms"], 0);
  EXPECT_GE(result["p95_e2el_ms"], result["p50_e2el_ms"]);
  EXPECT_EQ(result["memory_bytes"], (json{{"weights", 0}, {"kv_cache", 0}, {"workspace", 0}}));
  EXPECT_TRUE(result["router_imbalance"].is_null());
  EXPECT_TRUE(result["rank_imbalance"].is_null());
  EXPECT_TRUE(result["eplb"].is_null());
  const json steps = json::parse(text("steps.json"));
  EXPECT_EQ(steps["schema"], "fathom.steps/1");
  EXPECT_EQ(steps["totals"], result);
  EXPECT_TRUE(seen.on_step);
  EXPECT_GE(seen.max_queued_requests, 30);
  EXPECT_GE(seen.max_queued_tokens, 300);

  const auto breaking = [](const std::string&, const engine::EngineConfig&) {
    return std::make_unique<engine::FakeGenerator>(engine::FakeGenerator::Limits{.tokens_end = 1});
  };
  EXPECT_EQ(bench("throughput --model " + folder_.string() + " --num-prompts 2", breaking), 3);
}

}  // namespace
}  // namespace fathom::cli
