// GET /health, /live, /ping and /ready.
#include <nlohmann/json.hpp>

#include "serve/routes.h"

namespace fathom::serve {

void health(const RequestContext& context) {
  if (!context.model)
    return context.refuse(
        {.status = 503, .type = "unavailable_error", .message = "the model is being loaded"});
  context.respond({{"status", "ok"}});
}

void live(const RequestContext& context) { context.respond({{"status", "ok"}}); }

void ready(const RequestContext& context) { context.respond({{"status", "ready"}}); }

}  // namespace fathom::serve
