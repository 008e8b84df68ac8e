// POST /update_weights_from_disk, by SGLang's name: other weights for the served model.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "serve/json_fields.h"
#include "serve/routes.h"

namespace fathom::serve {
namespace {

using Mode = engine::WeightUpdate::Mode;

constexpr int64_t kMaxPathBytes = 4096, kMaxVersionBytes = 256;

ApiResult<engine::WeightUpdate> parse_weight_update(std::string_view body) {
  return read_body(body, [](const Field& root) {
    if (!root["model_path"]) root["model_path"].fail("is missing: give the folder of the new weights");
    const std::string folder = root["model_path"].text(kMaxPathBytes).value_or("");
    engine::WeightUpdate update{.folder  = folder,
                                .version = root["weight_version"].text(kMaxVersionBytes).value_or(folder)};
    const auto& names = engine::kUpdateModeNames;
    if (const auto mode = root["mode"].one_of({names[0], names[1], names[2], names[3]}))
      update.mode = static_cast<Mode>(std::find(names.begin(), names.end(), *mode) - names.begin());
    return update;
  });
}

}  // namespace

void update_weights_from_disk(const RequestContext& context) {
  if (!context.model->update_weights)
    return context.refuse(
        {.type = "WeightUpdateError", .message = "this server has no weights of its own to replace"});
  auto parsed = parse_weight_update(context.request.body);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return context.refuse(*error);
  auto& update = std::get<engine::WeightUpdate>(parsed);
  // Answers on the strand, which ends with the server; the engine may outlive it.
  auto done = [context, version = update.version](const Status& status) {
    context.exchange->post([context, version, status] {
      if (!status) return context.refuse({.type = "WeightUpdateError", .message = status.error().message});
      context.respond(
          {{"success", true}, {"message", "the weights are in use"}, {"weight_version", version}});
    });
  };
  if (const Status started = context.model->update_weights(std::move(update), std::move(done)); !started)
    context.refuse({.status = 409, .type = "WeightUpdateError", .message = started.error().message});
}

}  // namespace fathom::serve
