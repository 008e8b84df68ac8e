// The routes of the API: method, path and handler. Each handler is in the file that its line in routes.cpp
// names.
#pragma once

#include <string_view>

#include "serve/request_context.h"

namespace fathom::serve {

inline constexpr std::string_view kModelPath = "/v1/models/";  // and the model's name

struct Route {
  // What must be there before the route can answer: `ready` is a model, and no drain.
  enum class Needs { nothing, model, ready };

  std::string_view method, path;
  void (*handler)(const RequestContext&);
  Needs needs = Needs::model;
  bool open   = false;  // answers without an API key
  bool admin  = false;  // wants the admin's key (ApiOptions::admin_api_key)
};

const Route* find_route(std::string_view path);  // null: there is none

void chat_completions(const RequestContext& context);
void completions(const RequestContext& context);
void responses(const RequestContext& context);
void tokenize(const RequestContext& context);
void detokenize(const RequestContext& context);
void models(const RequestContext& context);
void one_model(const RequestContext& context);
void stats(const RequestContext& context);
void metrics(const RequestContext& context);
void health(const RequestContext& context);
void live(const RequestContext& context);
void ready(const RequestContext& context);
void version(const RequestContext& context);
void worker(const RequestContext& context);
void update_weights_from_disk(const RequestContext& context);
void cpu_profile(const RequestContext& context);
void page(const RequestContext& context);
void openapi(const RequestContext& context);

}  // namespace fathom::serve
