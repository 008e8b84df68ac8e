#include "serve/routes.h"

#include <algorithm>
#include <array>

namespace fathom::serve {
namespace {

using Needs = Route::Needs;

constexpr std::array kRoutes = {
    // chat_completion_route.cpp, completion_route.cpp, responses_route.cpp
    Route{"POST", "/v1/chat/completions", chat_completions, Needs::ready},
    Route{"POST", "/v1/completions", completions, Needs::ready},
    Route{"POST", "/v1/responses", responses, Needs::ready},
    // tokenize_route.cpp
    Route{"POST", "/tokenize", tokenize},
    Route{"POST", "/v1/tokenize", tokenize},
    Route{"POST", "/detokenize", detokenize},
    Route{"POST", "/v1/detokenize", detokenize},
    // models_route.cpp
    Route{"GET", "/v1/models", models},
    Route{"GET", kModelPath, one_model},
    // metrics_route.cpp
    Route{"GET", "/stats", stats},
    Route{"GET", "/metrics", metrics},
    // health_route.cpp
    Route{"GET", "/health", health, Needs::nothing, true},
    Route{"GET", "/v1/health", health, Needs::nothing, true},
    Route{"GET", "/ping", live, Needs::nothing, true},
    Route{"GET", "/live", live, Needs::nothing, true},
    Route{"GET", "/ready", ready, Needs::ready, true},
    // worker_route.cpp: between the processes of a disaggregated server
    Route{"GET", "/worker/status", worker},
    Route{"POST", "/worker/generate", worker, Needs::ready},
    Route{"POST", "/worker/cancel", worker},
    Route{"POST", "/worker/prefill", worker, Needs::ready},
    Route{"POST", "/worker/role", worker},
    // weights_route.cpp
    Route{"POST", "/update_weights_from_disk", update_weights_from_disk, Needs::ready, false, true},
    // profile_route.cpp
    Route{"GET", "/debug/pprof/profile", cpu_profile, Needs::nothing, false, true},
    // page_route.cpp
    Route{"GET", "/version", version, Needs::nothing},
    Route{"GET", "/", page, Needs::nothing, true},
    Route{"GET", "/openapi.json", openapi, Needs::nothing, true},
};

}  // namespace

const Route* find_route(std::string_view path) {
  const auto route = std::find_if(kRoutes.begin(), kRoutes.end(), [&](const Route& route) {
    return route.path == path ||
           (route.path == kModelPath && path.starts_with(kModelPath) && path.size() > kModelPath.size());
  });
  return route == kRoutes.end() || path == kModelPath ? nullptr : &*route;
}

}  // namespace fathom::serve
