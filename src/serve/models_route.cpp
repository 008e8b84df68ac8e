// GET /v1/models and /v1/models/{id}.
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "serve/routes.h"

namespace fathom::serve {
namespace {

using Json = nlohmann::ordered_json;

Json model_json(const RequestContext& context, const std::string& name) {
  Json json = {
      {"id", name},
      {"object", "model"},
      {"created",
       std::chrono::duration_cast<std::chrono::seconds>(context.server_started.time_since_epoch()).count()},
      {"owned_by", "fathom"},
      {"root", name},
      {"parent", nullptr},
      {"max_model_len", context.model->generator.max_context()},
      {"permission", Json::array()}};
  for (const auto& module : context.options.lora_modules)
    if (module.name == name) {
      json["root"]   = module.path;
      json["parent"] = context.options.model_names.front();
    }
  return json;
}

}  // namespace

void models(const RequestContext& context) {
  Json list = {{"object", "list"}, {"data", Json::array()}};
  for (const std::string& name : context.options.model_names)
    list["data"].push_back(model_json(context, name));
  for (const auto& module : context.options.lora_modules)
    list["data"].push_back(model_json(context, module.name));
  context.respond(list);
}

void one_model(const RequestContext& context) {
  const std::string name = context.request.path.substr(kModelPath.size());
  if (const auto error = context.check_model(name)) return context.refuse(*error);
  context.respond(model_json(context, name));
}

}  // namespace fathom::serve
