// GET /debug/pprof/profile?seconds=30, where Go's net/http/pprof has it: where this process spends CPU time.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include "serve/routes.h"

namespace fathom::serve {
namespace {

constexpr double kMostProfiledS = 600;

// The value of `name` in "a=1&b=2"; "" where it is not there.
std::string_view query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('='))
      return pair.substr(name.size() + 1);
  }
  return {};
}

}  // namespace

void cpu_profile(const RequestContext& context) {
  const auto refuse = [&](int status, const char* type, std::string message) {
    context.refuse({.status = status, .type = type, .message = std::move(message)});
  };
  if (!context.options.cpu_profile) return refuse(404, "NotFoundError", "this server profiles nothing");
  double seconds              = 30;
  const std::string_view text = query_value(context.request.query, "seconds");
  if (!text.empty()) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (error != std::errc() || end != text.data() + text.size() ||
        !(seconds > 0 && seconds <= kMostProfiledS))
      return refuse(400, "BadRequestError",
                    fmt::format("seconds is '{}', but must be above 0 and at most {}", text, kMostProfiledS));
  }
  const std::string_view format = query_value(context.request.query, "format");
  if (!format.empty() && format != "pprof" && format != "folded")
    return refuse(400, "BadRequestError", fmt::format("format is '{}', but must be pprof or folded", format));
  const bool folded = format == "folded";
  auto respond      = [exchange = context.exchange, folded](std::string file) {
    exchange->respond(200,
                           {{"Content-Type", folded ? "text/plain; charset=utf-8" : "application/octet-stream"},
                       {"Content-Disposition", folded ? "inline" : "attachment; filename=\"profile\""}},
                           std::move(file));
  };
  if (context.request.method == "HEAD") return respond("");
  auto started = context.options.cpu_profile(seconds, folded ? ProfileFormat::folded : ProfileFormat::pprof,
                                             std::move(respond));
  if (!started) return refuse(503, "unavailable_error", started.error().message);
  context.exchange->on_gone(std::move(started).value());
}

}  // namespace fathom::serve
