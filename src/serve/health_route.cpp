// GET /health, /live, /ping and /ready.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "serve/routes.h"

namespace fathom::serve {

void health(const RequestContext& context) {
  if (!context.model)
    return context.refuse(
        {.status = 503, .type = "unavailable_error", .message = "the model is being loaded"});
  const double stalled_s = context.model->generator.stats().stalled_s;
  if (std::chrono::duration<double>(stalled_s) > context.model->iteration_timeout)
    return context.refuse(
        {.status  = 503,
         .type    = "unavailable_error",
         .message = fmt::format("the engine has work, and has ended no step for {:.0f} s", stalled_s)});
  context.respond({{"status", "ok"}});
}

void live(const RequestContext& context) { context.respond({{"status", "ok"}}); }

void ready(const RequestContext& context) { context.respond({{"status", "ready"}}); }

}  // namespace fathom::serve
