// GET / (the page), /openapi.json and /version.
#include <nlohmann/json.hpp>

#include "serve/routes.h"

namespace fathom::serve {

void page(const RequestContext& context) {
  context.exchange->respond(200,
                            {{"Content-Type", "text/html; charset=utf-8"},
                             {"X-Frame-Options", "DENY"},
                             {"Content-Security-Policy", "frame-ancestors 'none'"}},
                            context.options.page);
}

void openapi(const RequestContext& context) {
  context.exchange->respond(200, {{"Content-Type", "application/json"}}, context.options.openapi);
}

void version(const RequestContext& context) { context.respond({{"version", context.options.version}}); }

}  // namespace fathom::serve
