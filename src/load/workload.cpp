#include "load/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/expect.h"
#include "core/rng.h"

namespace fathom::load {
namespace {

using model::TokenId;
using nlohmann::json;

constexpr int64_t kMaxVocabulary = int64_t{1} << 24;  // of a prompt or an answer
constexpr int64_t kTraceBlock    = 512;               // tokens for each of hash_ids
constexpr size_t kMaxLineBytes   = 64 << 20;

// The random streams of one workload.
enum class Part : uint64_t { prompt, prefix, input_len, output_len, order, block };

uint64_t seed_of(uint64_t seed, Part part, int64_t index = 0) {
  const auto at    = static_cast<uint64_t>(index);
  const auto words = philox(
      {static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), static_cast<uint32_t>(part), 0x776C},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{words[1]} << 32 | words[0];
}

void append_random(std::vector<TokenId>& ids, int64_t count, uint64_t seed, const WorkloadSpec& spec) {
  const size_t before = ids.size();
  ids.resize(before + static_cast<size_t>(count));
  fill_integers(ids.data() + before, count, seed, spec.first_id, spec.end_id);
}

std::vector<int64_t> random_lengths(int64_t count, int64_t length, double ratio, uint64_t seed) {
  const double mean = static_cast<double>(length);
  const auto lo     = std::max<int64_t>(1, static_cast<int64_t>(std::floor(mean * (1 - ratio))));
  const auto hi     = std::max(lo, static_cast<int64_t>(std::ceil(mean * (1 + ratio))));
  std::vector<int64_t> lengths(static_cast<size_t>(count));
  fill_integers(lengths.data(), count, seed, lo, hi + 1);
  return lengths;
}

std::vector<Request> random_requests(const WorkloadSpec& spec, int64_t count, uint64_t seed) {
  const auto inputs = random_lengths(count, spec.input_len, spec.range_ratio, seed_of(seed, Part::input_len));
  const auto outputs =
      random_lengths(count, spec.output_len, spec.range_ratio, seed_of(seed, Part::output_len));
  std::vector<int64_t> order(static_cast<size_t>(count));
  fill_permutation(order.data(), count, seed_of(seed, Part::order), count);
  std::vector<Request> requests(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const auto at    = static_cast<size_t>(i);
    Request& request = requests[at];
    append_random(request.ids, spec.prefix_len, seed_of(seed, Part::prefix, order[at] % spec.num_prefixes),
                  spec);
    append_random(request.ids, inputs[at], seed_of(seed, Part::prompt, i), spec);
    request.input_tokens  = static_cast<int64_t>(request.ids.size());
    request.output_tokens = outputs[at];
  }
  return requests;
}

// One line of a file; its errors name the place.
class Line {
 public:
  Line(std::string place, json object) : place_(std::move(place)), object_(std::move(object)) {}

  bool has(const char* field) const { return object_.contains(field) && !object_[field].is_null(); }
  const json& operator[](const char* field) const { return object_[field]; }
  Error wrong(std::string_view what) const { return {fmt::format("{}: {}", place_, what)}; }

  Result<int64_t> tokens(const char* field, int64_t least) const {
    const json value = has(field) ? object_[field] : json();
    if (!value.is_number_integer() || value < least || value > kMaxVocabulary)
      return wrong(
          fmt::format("'{}' must be a whole number of tokens from {} to {}", field, least, kMaxVocabulary));
    return value.get<int64_t>();
  }

  Status prompt(const json& value, Request& request) const {
    const Error error = wrong(
        "'prompt' must be text or a list of token ids (whole numbers from 0 to 2^31 - 1), and not empty");
    if (value.is_string()) {
      request.text = value.get<std::string>();
      return request.text.empty() ? Status(error) : Ok{};
    }
    if (!value.is_array() || value.empty() || value.size() > kMaxVocabulary) return error;
    for (const json& id : value) {
      if (!id.is_number_integer() || id < 0 || id > INT32_MAX) return error;
      request.ids.push_back(id.get<TokenId>());
    }
    request.input_tokens = static_cast<int64_t>(request.ids.size());
    return Ok{};
  }

 private:
  std::string place_;
  json object_;
};

Result<Request> from_trace(const Line& line, int64_t index, uint64_t seed, const WorkloadSpec& spec) {
  Request request;
  const json at = line.has("timestamp") ? line["timestamp"] : json();
  if (!at.is_number() || !(at.get<double>() >= 0) || at.get<double>() > 1e15)
    return line.wrong("'timestamp' must be a number of milliseconds, 0 or more");
  request.at_s      = at.get<double>() * 1e-3;
  const auto output = line.tokens("output_length", 1);
  if (!output) return output.error();
  request.output_tokens = *output;
  if (line.has("prompt")) {
    if (const Status read = line.prompt(line["prompt"], request); !read) return read.error();
    return request;
  }
  const auto input = line.tokens("input_length", 1);
  if (!input) return input.error();
  if (line.has("hash_ids")) {
    const json& blocks = line["hash_ids"];
    if (!blocks.is_array() ||
        static_cast<int64_t>(blocks.size()) != (*input + kTraceBlock - 1) / kTraceBlock ||
        !std::all_of(blocks.begin(), blocks.end(), [](const json& id) { return id.is_number_integer(); }))
      return line.wrong("'hash_ids' must be whole numbers, one for each 512 tokens of input_length");
    for (const json& id : blocks)
      append_random(request.ids, std::min(kTraceBlock, *input - static_cast<int64_t>(request.ids.size())),
                    seed_of(seed, Part::block, id.get<int64_t>()), spec);
  } else {
    append_random(request.ids, *input, seed_of(seed, Part::prompt, index), spec);
  }
  request.input_tokens = *input;
  return request;
}

Result<Request> from_custom(const Line& line, const WorkloadSpec& spec) {
  Request request{.output_tokens = spec.output_len};
  if (line.has("output_tokens")) {
    const auto output = line.tokens("output_tokens", 1);
    if (!output) return output.error();
    request.output_tokens = *output;
  }
  json asked;
  if (line.has("prompt")) {
    asked = line["prompt"];
  } else if (line.has("conversations")) {
    const json& messages = line["conversations"];
    if (!messages.is_array() || messages.empty() || !messages[0].is_object() ||
        !messages[0].contains("value"))
      return line.wrong("'conversations' must be a list of {\"from\", \"value\"}, and not empty");
    asked = messages[0]["value"];
  }
  if (const Status read = line.prompt(asked, request); !read) return read.error();
  return request;
}

Result<std::vector<Request>> from_file(const WorkloadSpec& spec, int64_t count, uint64_t seed) {
  std::ifstream in(spec.path, std::ios::binary);
  if (!in) return Error{fmt::format("the dataset '{}' cannot be read: name a JSONL file", spec.path)};
  std::vector<Request> requests;
  std::string text;
  int64_t number = 0;
  while ((count == 0 || static_cast<int64_t>(requests.size()) < count) && std::getline(in, text)) {
    ++number;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}:{}", spec.path, number);
    if (text.size() > kMaxLineBytes) return Error{place + ": the line has more than 64 MiB"};
    json object = json::parse(text, nullptr, false);
    if (!object.is_object()) return Error{place + ": not a JSON object; write one a line"};
    const Line line(place, std::move(object));
    auto request = spec.dataset == WorkloadSpec::Dataset::trace
                       ? from_trace(line, static_cast<int64_t>(requests.size()), seed, spec)
                       : from_custom(line, spec);
    if (!request) return request.error();
    requests.push_back(std::move(*request));
  }
  if (requests.empty()) return Error{fmt::format("the dataset '{}' has no requests", spec.path)};
  const double first_s = requests.front().at_s.value_or(0);
  for (Request& request : requests)
    if (request.at_s) *request.at_s -= first_s;
  if (!std::is_sorted(requests.begin(), requests.end(), [](const Request& a, const Request& b) {
        return a.at_s.value_or(0) < b.at_s.value_or(0);
      }))
    return Error{fmt::format("{}: timestamps go back in time; sort the lines by them", spec.path)};
  for (size_t i = 0; static_cast<int64_t>(requests.size()) < count; ++i) {
    requests.push_back(requests[i]);
    requests.back().at_s.reset();
  }
  return requests;
}

}  // namespace

Result<std::vector<Request>> make_workload(const WorkloadSpec& spec, int64_t count, uint64_t seed) {
  FATHOM_EXPECT(spec.first_id >= 0 && spec.first_id < spec.end_id,
                "random ids need a range that is not empty");
  FATHOM_EXPECT(spec.range_ratio >= 0 && spec.range_ratio < 1, "the range ratio lies in [0, 1)");
  FATHOM_EXPECT(spec.num_prefixes > 0 && spec.prefix_len >= 0, "at least one prefix, of no tokens or more");
  if (spec.dataset != WorkloadSpec::Dataset::random) return from_file(spec, count, seed);
  FATHOM_EXPECT(count > 0, "a random workload has no number of its own");
  return random_requests(spec, count, seed);
}

Status write_as_text(std::vector<Request>& requests, const model::Tokenizer& tokenizer) {
  for (Request& request : requests) {
    if (!request.text.empty()) continue;
    std::vector<TokenId> ids = request.ids;
    const size_t wanted      = ids.size();
    for (int attempt = 0;; ++attempt) {
      request.text = tokenizer.decode(ids, true);
      auto again   = tokenizer.encode(request.text);
      if (!again) return again.error();
      request.input_tokens = static_cast<int64_t>(again->size());
      if (again->size() == wanted || attempt == 10) break;
      ids = std::move(*again);
      // Merged tokens leave the prompt too short: appends tokens from elsewhere in the same prompt.
      for (size_t i = 0; ids.size() < wanted; ++i)
        ids.push_back(request.ids[(i * 7 + static_cast<size_t>(attempt) * 13 + 1) % wanted]);
      ids.resize(wanted);
    }
    request.ids.clear();
  }
  return Ok{};
}

Status write_as_ids(std::vector<Request>& requests, const model::Tokenizer& tokenizer) {
  for (Request& request : requests) {
    if (request.text.empty()) continue;
    auto ids = tokenizer.encode(request.text);
    if (!ids) return ids.error();
    request.ids          = std::move(*ids);
    request.input_tokens = static_cast<int64_t>(request.ids.size());
    request.text.clear();
  }
  return Ok{};
}

}  // namespace fathom::load
